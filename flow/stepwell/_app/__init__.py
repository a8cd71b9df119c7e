"""The app: where calls meet a store."""
