"""What others hear of a registry: read from it, kept due per destination, delivered later."""
