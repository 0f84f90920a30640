"""A client that diagnoses a log by tool calls only, and prints what was said: the transcript of docs/howto/agents.md.

fwnkf data example flight.csv
python docs/howto/agents.py FOLDER      # the folder of flight.csv; needs the extra agents
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters, stdio_client


async def diagnose(folder: Path) -> None:
    """List the folder, diagnose the log that is there, ask for a file outside."""
    words = ["-m", "fwnkf.cli", "mcp", "--root", str(folder)]
    server = StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
    async with Client(stdio_client(server)) as client:

        async def call(tool: str, **arguments: Any) -> Any:
            print(f"→ {tool} {json.dumps(arguments)}")
            answer = await client.call_tool(tool, arguments)
            kinds = [block.type for block in answer.content]
            print(f"← {'error' if answer.is_error else ', '.join(dict.fromkeys(kinds))}")
            text = answer.content[0].text
            return text if answer.is_error else json.loads(text)

        listed = await call("files")
        name = next(row["name"] for row in listed["entries"] if row["name"].endswith(".csv"))
        print(f"  {name}")
        found = await call("diagnose", log=name, output="report.html")
        print(f"  {found['verdict']}")
        first = found["findings"][0]
        print(f"  {first['severity']} ({first['cause']}): {first['what']}")
        print(f"  {(await call('diagnose', log='/etc/passwd')).split(':')[0]}")


if __name__ == "__main__":
    anyio.run(diagnose, Path(sys.argv[1]))
