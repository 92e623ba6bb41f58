"""`simulate`: runs the engine on a cluster file or a trace, in virtual time, and reports how full the cards get."""
