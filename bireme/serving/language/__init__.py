"""Language models in service: pages, scheduler, programs, engine."""
