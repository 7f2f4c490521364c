package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Between these lines stands the table of values on the page of the chart.
const begin, end = "<!-- values: written by make generate -->\n", "<!-- end of values -->\n"

// tabulate writes the table of values, with what their comments say, to the page.
func tabulate(values, page string) error {
	text, err := os.ReadFile(values)
	if err != nil {
		return fmt.Errorf("reading the values: %w", err)
	}

	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return fmt.Errorf("reading the values: %w", err)
	}

	table := &strings.Builder{}
	table.WriteString("\n| value | default | |\n|---|---|---|\n")
	if err := rows(table, "", document.Content[0]); err != nil {
		return err
	}

	old, err := os.ReadFile(page)
	if err != nil {
		return fmt.Errorf("reading the page: %w", err)
	}

	before, rest, found := bytes.Cut(old, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !found || !closed {
		return fmt.Errorf("%s has no place for the table", page)
	}

	written := fmt.Sprintf("%s%s%s\n%s%s", before, begin, table, end, after)
	return os.WriteFile(page, []byte(written), 0o644) //nolint:gosec // sources are for everybody
}

// rows writes a row for each value; what a value is for must be said above it.
func rows(table *strings.Builder, path string, node *yaml.Node) error {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		name := strings.TrimPrefix(path+"."+key.Value, ".")
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && key.Value != "resources" {
			if err := rows(table, name, value); err != nil {
				return err
			}
			continue
		}
		comment := strings.Join(strings.Fields(strings.ReplaceAll(lastParagraph(key.HeadComment), "#", " ")),
			" ")
		if comment == "" {
			return fmt.Errorf("nothing is said about value %s", name)
		}
		var content any
		if err := value.Decode(&content); err != nil {
			return fmt.Errorf("reading value %s: %w", name, err)
		}
		shown, err := json.Marshal(content)
		if err != nil {
			return fmt.Errorf("showing value %s: %w", name, err)
		}
		fmt.Fprintf(table, "| `%s` | `%s` | %s |\n", name, shown, strings.TrimSuffix(comment, "."))
	}

	return nil
}

func lastParagraph(comment string) string {
	paragraphs := strings.Split(comment, "\n\n")
	return paragraphs[len(paragraphs)-1]
}
