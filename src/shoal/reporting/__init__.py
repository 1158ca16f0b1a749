"""Reports: a run or a study as one HTML file, which needs no network and no server.

* :mod:`shoal.reporting.command` writes the file.
* :mod:`shoal.reporting.run_page` and :mod:`shoal.reporting.study_page` make its sections, from the files of a run and
  from the records of a study.
* :mod:`shoal.reporting.markup` escapes every text; :mod:`shoal.reporting.page` puts the page together, with a content
  security policy that allows no script but those of ``assets/``.

Texts from run folders and records may be somebody else's: none is executed, and none reaches the page unescaped.
"""

from shoal.reporting.command import report

__all__ = ["report"]
