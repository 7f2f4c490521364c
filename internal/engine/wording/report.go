package wording

import (
	"fmt"
	"strings"
)

// Report is a plan as text.
type Report struct {
	// Summary are sentences about the whole.
	Summary []string
	// Lines are the decisions; each is about something different.
	Lines []Line
}

// Line is one decision. It is about an object, such as "pod web-1", or about all pods with the same verdict,
// such as "wait: Paused".
type Line struct{ About, Words string }

// Add adds a decision.
func (p *Report) Add(about, format string, args ...any) {
	p.Lines = append(p.Lines, Line{About: about, Words: fmt.Sprintf(format, args...)})
}

// named is how many names of a group are printed.
const named = 3

// AddGroup adds one decision about all pods with these names; words may be empty.
func (p *Report) AddGroup(about string, names []string, words string) {
	more := ""
	if len(names) > named {
		more = " ..."
	}
	text := fmt.Sprintf("%s (%s%s)", Count(len(names), "pod"),
		strings.Join(names[:min(named, len(names))], ", "), more)
	if words != "" {
		text += ": " + words
	}
	p.Lines = append(p.Lines, Line{About: about, Words: text})
}

// String returns the plan as text, with one line for each sentence and decision.
func (p *Report) String() string {
	var b strings.Builder
	for _, sentence := range p.Summary {
		b.WriteString(sentence + "\n")
	}
	for _, line := range p.Lines {
		b.WriteString(line.About + ": " + line.Words + "\n")
	}
	return b.String()
}

// Record returns keys and values for a structured log: the sentences, and an object with a field for each
// line, so that `.decisions["pod web-1"]` of a JSON log is the decision about that pod.
func (p *Report) Record() []any {
	decisions := make(map[string]string, len(p.Lines))
	for _, line := range p.Lines {
		decisions[line.About] = line.Words
	}
	return []any{"summary", p.Summary, "decisions", decisions}
}
