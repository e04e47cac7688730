"""What tests of this package and of others stand on: contracts, faults, samples."""
