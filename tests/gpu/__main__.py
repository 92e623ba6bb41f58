"""`make test-gpu`: run every check, write the report, print its path. Exit code 1 where a check failed."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Final

from tests.gpu.checks import OTHERS, Check, CheckFailed, CheckSkipped, Rig, cards
from tests.gpu.machine import driver, versions
from tests.gpu.report import Report, Result, Verdict, as_markdown

_REPORT: Final = Path("build/test-gpu/report.md")
_CHECK_WITHIN_S: Final = 100.0
_ALL_WITHIN_S: Final = 290.0


async def checked(report: Report) -> None:
    """Add every result."""
    rig = Rig(driver())
    try:
        async with asyncio.timeout(_ALL_WITHIN_S):
            report.results.append(await _result("cards", cards, rig))
            for name, check in OTHERS.items():
                if rig.cards:
                    report.results.append(await _result(name, check, rig))
                else:
                    report.results.append(Result(name, Verdict.SKIPPED, "no card can be asked"))
    except TimeoutError:
        report.results.append(Result("all checks", Verdict.FAILED, f"not done within {_ALL_WITHIN_S:g} s"))
    finally:
        await rig.driver.close()


async def _result(name: str, check: Check, rig: Rig) -> Result:
    began_s = time.monotonic()
    verdict, text = Verdict.PASSED, ""
    try:
        async with asyncio.timeout(_CHECK_WITHIN_S):
            text = await check(rig)
    except CheckSkipped as why:
        verdict, text = Verdict.SKIPPED, str(why)
    except CheckFailed as why:
        verdict, text = Verdict.FAILED, str(why)
    except TimeoutError:
        verdict, text = Verdict.FAILED, f"not done within {_CHECK_WITHIN_S:g} s"
    return Result(name, verdict, text, time.monotonic() - began_s)


def main() -> None:
    """The whole program. The first argument is the report's path."""
    report, path = Report(versions()), Path(sys.argv[1]) if len(sys.argv) > 1 else _REPORT
    asyncio.run(checked(report))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(as_markdown(report), encoding="utf-8")
    for one in report.results:
        print(f"{one.verdict:8} {one.check}: {one.text}")  # noqa: T201 - a program
    print(f"report: {path}")  # noqa: T201 - a program
    sys.exit(0 if report.passed else 1)


if __name__ == "__main__":
    main()
