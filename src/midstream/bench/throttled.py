"""A slow store for Spark's own state: the local disk as a Hadoop file system that is read at a bounded speed.

Midstream bounds its reads itself. Spark reads its checkpoints through Hadoop, and Hadoop has no such bound, so here is
a file system that has. It is Java, compiled by Janino, which comes with Spark: no compiler is needed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEME = "throttled"
_CLASS = "ThrottledFileSystem"
_RATE = f"fs.{SCHEME}.bytes.per.second"  # of a process

_JAVA = f"""
import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

public class {_CLASS} extends RawLocalFileSystem {{
  private static long free = 0L;  // when the store is free again, in nanoseconds

  static void pay(long bytes, long perSecond) throws IOException {{
    long until;
    synchronized ({_CLASS}.class) {{
      free = Math.max(free, System.nanoTime()) + bytes * 1000000000L / perSecond;
      until = free;
    }}
    try {{
      for (long left = until - System.nanoTime(); left > 0L; left = until - System.nanoTime()) {{
        Thread.sleep(left / 1000000L, (int) (left % 1000000L));
      }}
    }} catch (InterruptedException interrupted) {{
      Thread.currentThread().interrupt();
      throw new IOException("interrupted while reading");
    }}
  }}

  public String getScheme() {{ return "{SCHEME}"; }}

  public URI getUri() {{ return URI.create("{SCHEME}:///"); }}

  public FSDataInputStream open(Path path, int bufferSize) throws IOException {{
    return new FSDataInputStream(new Slow(super.open(path, bufferSize), getConf().getLong("{_RATE}", Long.MAX_VALUE)));
  }}

  static class Slow extends FSInputStream {{
    private final FSDataInputStream file;
    private final long perSecond;

    Slow(FSDataInputStream file, long perSecond) {{
      this.file = file;
      this.perSecond = perSecond;
    }}

    private int paid(int bytes) throws IOException {{
      if (bytes > 0) pay(bytes, this.perSecond);
      return bytes;
    }}

    public int read() throws IOException {{
      int found = this.file.read();
      if (found >= 0) pay(1L, this.perSecond);
      return found;
    }}

    public int read(byte[] into, int from, int most) throws IOException {{
      return paid(this.file.read(into, from, most));
    }}

    public int read(long position, byte[] into, int from, int most) throws IOException {{
      return paid(this.file.read(position, into, from, most));
    }}

    public void seek(long position) throws IOException {{ this.file.seek(position); }}

    public long getPos() throws IOException {{ return this.file.getPos(); }}

    public boolean seekToNewSource(long position) throws IOException {{ return this.file.seekToNewSource(position); }}

    public int available() throws IOException {{ return this.file.available(); }}

    public void close() throws IOException {{ this.file.close(); }}
  }}
}}
"""


def settings(classes: str, bytes_per_second: int) -> dict[str, str]:
    """Settings with which each process of a session reads the slow store at this speed; `classes` is a directory."""
    return {
        "spark.driver.extraClassPath": classes,
        "spark.executor.extraClassPath": classes,
        f"spark.hadoop.fs.{SCHEME}.impl": _CLASS,
        f"spark.hadoop.{_RATE}": str(bytes_per_second),
    }


def compile_into(classes: str, spark: SparkSession) -> None:
    """Compile the file system into the directory of the session's setting; call it before the first use."""
    jvm = spark._jvm
    assert jvm is not None
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    compiler.cook(_JAVA)
    for name, code in compiler.getBytecodes().items():
        Path(classes, f"{name}.class").write_bytes(code)


def url(path: str) -> str:
    """Name a path on the local disk as one of the slow store."""
    return f"{SCHEME}://{os.path.abspath(path)}"
