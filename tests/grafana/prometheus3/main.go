// Parses the PromQL expressions of a JSON array on standard input with Prometheus's own parser, and prints those that
// it refuses.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

func main() {
	var expressions []string
	if err := json.NewDecoder(os.Stdin).Decode(&expressions); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	prometheus, refused := parser.NewParser(parser.Options{}), 0
	for _, expression := range expressions {
		if _, err := prometheus.ParseExpr(expression); err != nil {
			refused++
			fmt.Printf("%v\n%s\n\n", err, expression)
		}
	}
	fmt.Printf("%d expressions, %d refused\n", len(expressions), refused)
	if refused > 0 {
		os.Exit(1)
	}
}
