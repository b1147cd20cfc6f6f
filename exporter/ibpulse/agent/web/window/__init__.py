"""Windows of raw samples: query and encodings; `ibpulse.core.window` reads them."""
