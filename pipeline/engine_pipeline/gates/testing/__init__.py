"""What tests of gates, here and elsewhere, are run against."""
