"""Plans, as frozen data: operators, their code, and how one plan follows another.

Pure: no Spark, no files, no clock. Everything above may import it; it imports `spark` nowhere.
"""
