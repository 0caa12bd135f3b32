"""Stores of one group's state: the contract, LMDB, in memory, snapshots in place, and changes over one."""
