"""A CSV or Parquet file of the user's, read as trials or whole curves."""
