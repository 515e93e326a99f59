"""The suite tests itself: every injected fault must be found, and no correct variation accused."""
