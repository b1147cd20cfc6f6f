"""Windows of raw samples: query and encodings; `ibpulse.core.window_values` reads them."""
