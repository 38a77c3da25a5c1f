import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStoreClient;
import org.apache.hadoop.hive.metastore.IMetaStoreClient;
import org.apache.hadoop.hive.metastore.partition.spec.PartitionSpecProxy;
import org.apache.thrift.TApplicationException;
import org.apache.thrift.TBase;
import org.apache.thrift.TFieldIdEnum;
import org.apache.thrift.meta_data.FieldMetaData;
import org.apache.thrift.protocol.TProtocolException;
import org.apache.thrift.transport.TTransportException;

/**
 * Makes calls of Hive's Java client, of whatever version is on the class path: {@code Calls PORT CALLS ANSWERS}.
 *
 * <p>A line of CALLS is {@code {"method": "getTable(String,String)", "arguments": [..], "as": "t"}}. The first line
 * of ANSWERS is the list of all methods of the interface, each further one a call's answer or the name of its error.
 */
public final class Calls {
  private static final Gson GSON = new Gson();
  private static final Map<String, Object> KEPT = new HashMap<>();

  public static void main(String[] arguments) throws Exception {
    Constructor<?> constructor =
        Arrays.stream(HiveMetaStoreClient.class.getConstructors())
            .filter(one -> one.getParameterCount() == 1)
            .findFirst()
            .get();
    Configuration settings =
        (Configuration) constructor.getParameterTypes()[0].getConstructor().newInstance();
    for (String name : Arrays.asList("hive.metastore.uris", "metastore.thrift.uris")) {
      settings.set(name, "thrift://127.0.0.1:" + arguments[0]);
    }
    KEPT.put("settings", settings);
    Map<String, Method> methods = new TreeMap<>();
    for (Method method : IMetaStoreClient.class.getMethods()) {
      methods.put(signature(method), method);
    }
    try (PrintStream answers = new PrintStream(arguments[2], "UTF-8")) {
      answers.println(GSON.toJson(methods.keySet()));
      IMetaStoreClient client = (IMetaStoreClient) constructor.newInstance(settings);
      for (String line : Files.readAllLines(Paths.get(arguments[1]))) {
        JsonObject call = JsonParser.parseString(line).getAsJsonObject();
        Method method = methods.get(call.get("method").getAsString());
        if (method != null) {
          answers.println(GSON.toJson(answer(client, method, call)));
        } else {
          answers.println("{}");
        }
      }
    }
    System.exit(0);
  }

  private static String signature(Method method) {
    return Arrays.stream(method.getParameterTypes())
        .map(Class::getSimpleName)
        .collect(Collectors.joining(",", method.getName() + "(", ")"));
  }

  private static Map<String, Object> answer(IMetaStoreClient client, Method method, JsonObject call)
      throws Exception {
    Map<String, Object> told = new TreeMap<>();
    JsonArray given = call.getAsJsonArray("arguments");
    Type[] types = method.getGenericParameterTypes();
    Object[] values = new Object[types.length];
    try {
      for (int i = 0; i < types.length; i++) {
        values[i] = value(given.get(i), types[i]);
      }
    } catch (ReflectiveOperationException | RuntimeException error) {
      told.put("mistake", String.valueOf(error));
      return told;
    }
    try {
      Object answer = method.invoke(client, values);
      if (call.has("as")) {
        KEPT.put(call.get("as").getAsString(), answer);
      }
      told.put("answer", plain(answer));
      if (call.has("filled")) { // an argument that the method fills
        told.put("filled", plain(values[call.get("filled").getAsInt()]));
      }
    } catch (IllegalArgumentException | NullPointerException error) {
      told.put("error", "an earlier call gave no argument");
    } catch (InvocationTargetException error) {
      Throwable cause = error.getCause();
      boolean unknown = cause instanceof TApplicationException;
      told.put("error", cause.getClass().getSimpleName() + (unknown ? ": " + cause.getMessage() : ""));
      told.put("message", String.valueOf(cause.getMessage()));
      if (cause instanceof TTransportException || cause instanceof TProtocolException) {
        client.reconnect();
      }
    }
    return told;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static Object value(JsonElement json, Type type) throws Exception {
    Class<?> raw =
        (Class<?>) (type instanceof ParameterizedType ? ((ParameterizedType) type).getRawType() : type);
    Type[] inner =
        type instanceof ParameterizedType ? ((ParameterizedType) type).getActualTypeArguments() : new Type[0];
    if (json.isJsonNull()) {
      return null;
    } else if (json.isJsonObject() && json.getAsJsonObject().has("$")) {
      Object kept = KEPT.get(json.getAsJsonObject().get("$").getAsString());
      return kept instanceof TBase ? filled(((TBase) kept).deepCopy(), json.getAsJsonObject()) : kept;
    } else if (Collection.class.isAssignableFrom(raw)) {
      Collection<Object> values =
          java.util.Set.class.isAssignableFrom(raw) ? new LinkedHashSet<>() : new ArrayList<>();
      for (JsonElement one : json.getAsJsonArray()) {
        values.add(value(one, inner[0]));
      }
      return values;
    } else if (Map.class.isAssignableFrom(raw)) {
      Map<Object, Object> values = new LinkedHashMap<>();
      for (Map.Entry<String, JsonElement> one : json.getAsJsonObject().entrySet()) {
        values.put(one.getKey(), value(one.getValue(), inner[1]));
      }
      return values;
    } else if (raw == byte[].class) {
      return json.getAsString().getBytes(StandardCharsets.UTF_8);
    } else if (raw == ByteBuffer.class) {
      return ByteBuffer.wrap(json.getAsString().getBytes(StandardCharsets.UTF_8));
    } else if (raw.isEnum()) {
      return Enum.valueOf((Class<Enum>) raw, json.getAsString());
    } else if (json.isJsonPrimitive() || raw.isArray()) {
      return GSON.fromJson(json, raw);
    } else if (raw.getSimpleName().endsWith("Pair")) {
      Object left = value(json.getAsJsonArray().get(0), inner[0]);
      Object right = value(json.getAsJsonArray().get(1), inner[1]);
      return raw.getSimpleName().equals("Pair")
          ? raw.getMethod("of", Object.class, Object.class).invoke(null, left, right)
          : raw.getConstructor(Object.class, Object.class).newInstance(left, right);
    } else if (json.isJsonArray()) {
      for (Constructor<?> one : raw.getConstructors()) {
        if (one.getParameterCount() == json.getAsJsonArray().size()) {
          Object[] values = new Object[one.getParameterCount()];
          for (int i = 0; i < values.length; i++) {
            values[i] = value(json.getAsJsonArray().get(i), one.getGenericParameterTypes()[i]);
          }
          return one.newInstance(values);
        }
      }
      throw new IllegalArgumentException(raw + " from " + json);
    }
    return filled(raw.getConstructor().newInstance(), json.getAsJsonObject());
  }

  /** Fields by their setters, which also say that they are set; where there is none, as in PartitionDropOptions, directly. */
  private static Object filled(Object object, JsonObject json) throws Exception {
    for (Map.Entry<String, JsonElement> one : json.entrySet()) {
      boolean optional = one.getKey().endsWith("?"); // some versions have it
      String name = optional ? one.getKey().substring(0, one.getKey().length() - 1) : one.getKey();
      if (name.equals("$")) {
        continue;
      }
      if (!(object instanceof TBase)) {
        Field field = object.getClass().getField(name);
        field.set(object, value(one.getValue(), field.getGenericType()));
        continue;
      }
      String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
      Method found = null;
      for (Method method : object.getClass().getMethods()) {
        boolean fits = method.getName().equals(setter) && method.getParameterCount() == 1;
        if (fits && (found == null || method.getParameterTypes()[0] != ByteBuffer.class)) {
          found = method;
        }
      }
      if (found == null && optional) {
        continue;
      } else if (found == null) {
        throw new IllegalArgumentException(object.getClass() + " has no " + name);
      }
      found.invoke(object, value(one.getValue(), found.getGenericParameterTypes()[0]));
    }
    return object;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static Object plain(Object answer) {
    if (answer instanceof TBase) {
      TBase struct = (TBase) answer;
      Map<String, Object> fields = new TreeMap<>();
      Map<TFieldIdEnum, FieldMetaData> known =
          (Map<TFieldIdEnum, FieldMetaData>) (Map) FieldMetaData.getStructMetaDataMap(struct.getClass());
      for (TFieldIdEnum field : known.keySet()) {
        if (struct.isSet(field)) {
          fields.put(field.getFieldName(), plain(struct.getFieldValue(field)));
        }
      }
      return fields;
    } else if (answer instanceof Map) {
      Map<String, Object> values = new TreeMap<>();
      ((Map<Object, Object>) answer).forEach((key, value) -> values.put(String.valueOf(key), plain(value)));
      return values;
    } else if (answer instanceof java.util.Set) {
      return new TreeSet<>((Collection<Object>) answer);
    } else if (answer instanceof PartitionSpecProxy) {
      return plain(((PartitionSpecProxy) answer).toPartitionSpec());
    } else if (answer instanceof Iterable) {
      List<Object> values = new ArrayList<>();
      ((Iterable<Object>) answer).forEach(one -> values.add(plain(one)));
      return values;
    } else if (answer instanceof ByteBuffer) {
      return StandardCharsets.UTF_8.decode(((ByteBuffer) answer).duplicate()).toString();
    } else if (answer instanceof byte[]) {
      return new String((byte[]) answer, StandardCharsets.UTF_8);
    } else if (answer != null && answer.getClass().isArray()) {
      List<Object> values = new ArrayList<>();
      for (int i = 0; i < Array.getLength(answer); i++) {
        values.add(plain(Array.get(answer, i)));
      }
      return values;
    } else if (answer instanceof Number || answer instanceof String || answer instanceof Boolean) {
      return answer;
    } else if (answer instanceof Enum) {
      return ((Enum<?>) answer).name();
    }
    return answer == null ? null : answer.getClass().getSimpleName();
  }
}
