"""The lock in ZooKeeper, at the node that Hudi's Curator lock uses."""
