"""Reports: a run or a study as one HTML file that works without network and server.

Other packages import :func:`report`; the command line also records episodes with ``replays``.

* :mod:`shoal.reporting.command` writes the file.
* :mod:`shoal.reporting.run_page` and :mod:`shoal.reporting.study_page` make its sections, from the files of a run and
  from the records of a study.
* :mod:`shoal.reporting.page` escapes every text; :mod:`shoal.reporting.page` assembles the page, with a content
  security policy that allows only the scripts of ``assets/``.

Texts from run folders and records are untrusted: they are never executed, and they are escaped in the page.
"""

from shoal.reporting.command import report

__all__ = ["report"]
