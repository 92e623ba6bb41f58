"""An import contract that is an allow-list: what is not named may not be imported."""

import grimp
from importlinter import Contract, ContractCheck, fields, output


class MayImport(Contract):
    """Modules, each with all below it, import each other and what `allowed` names, each with all below it.

    of: the packages that the list is about; what lies outside them may be imported. Empty: everything is meant.
    """

    # import-linter sets what the fields read from the configuration.
    modules: list[str] = fields.ListField(subfield=fields.StringField())  # type: ignore[assignment]
    allowed: list[str] = fields.ListField(subfield=fields.StringField())  # type: ignore[assignment]
    of: list[str] = fields.ListField(subfield=fields.StringField(), required=False, default=[])  # type: ignore[assignment]

    def check(self, graph: grimp.ImportGraph, verbose: bool) -> ContractCheck:  # noqa: FBT001, ARG002 - import-linter's
        """Every direct import of `modules`, held against the list."""
        named = [*self.modules, *self.allowed]
        missing = [name for name in named if not _below(graph.modules, [name])]
        found = [
            (importer, imported)
            for importer in sorted(_below(graph.modules, self.modules))
            for imported in sorted(graph.find_modules_directly_imported_by(importer))
            if (not self.of or _below([imported], self.of)) and not _below([imported], named)
        ]
        return ContractCheck(kept=not missing and not found, metadata={"found": found, "missing": missing})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """One line per import that is not allowed, or per name that is no module."""
        for importer, imported in check.metadata["found"]:
            output.print_error(f"{importer} imports {imported}, which is not in its list")
        for name in check.metadata["missing"]:
            output.print_error(f"{name} is in the list and nobody imports it: remove it")


def _below(modules: "set[str] | list[str]", packages: list[str]) -> list[str]:
    return [module for module in modules if any(module == p or module.startswith(f"{p}.") for p in packages)]
