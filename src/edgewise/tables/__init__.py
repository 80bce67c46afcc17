"""Floor 0: tables. Named columns from CSV and Parquet files, read within bounds."""
