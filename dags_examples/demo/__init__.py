"""``make demo``: sets up an Airflow, runs the example DAGs on real flights, reads the table back."""
