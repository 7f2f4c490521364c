package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/terminal"
)

// connect creates a Reader for the user's cluster, and returns the user's namespace.
func connect(f cmdutil.Factory, managerNamespace string) (*Reader, string, error) {
	config, err := f.ToRESTConfig()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // kubectl's words
	}
	mapper, err := f.ToRESTMapper()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // kubectl's words
	}

	namespace, _, err := f.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", err //nolint:wrapcheck // kubectl's words
	}

	reader, err := NewReader(config, mapper, managerNamespace)
	return reader, namespace, err
}

// addOutput adds the flag -o.
func addOutput(cmd *cobra.Command, output *string, more ...string) {
	formats := append([]string{"json", "yaml"}, more...)
	cmd.Flags().StringVarP(output, "output", "o", "", "output format: "+strings.Join(formats, ", "))
	cmdutil.CheckErr(cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)))
}

// checkOutput returns an error if the flag -o has an unknown value.
func checkOutput(output string, more ...string) error {
	formats := append([]string{"", "json", "yaml"}, more...)
	if !slices.Contains(formats, output) {
		return fmt.Errorf("--output: %q is none of %s", output, strings.Join(formats[1:], ", "))
	}
	return nil
}

// document prints values as JSON or YAML. As in kubectl, a single value is printed by itself, and any other
// number of values as a List.
func document[T any](w io.Writer, output string, values []T) error {
	if values == nil {
		values = []T{}
	}

	var value any = map[string]any{
		"apiVersion": "v1",
		"kind":       "List",
		"metadata":   map[string]any{},
		"items":      values,
	}
	if len(values) == 1 {
		value = values[0]
	}

	text, err := json.MarshalIndent(value, "", "    ")
	text = []byte(terminal.Escaped(string(text)))
	if err == nil && output == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}

	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}

	_, err = fmt.Fprintln(w, strings.TrimRight(string(text), "\n"))
	return err
}

// grouped is the number of pods above which pods are printed in groups.
const grouped = 20

func (o *whyOptions) print(explanations []*Explanation) error {
	switch o.output {
	case "json", "yaml":
		return document(o.Out, o.output, explanations)
	case "name":
		for _, e := range explanations {
			for _, p := range e.Pods {
				if p.State == Waiting {
					fmt.Fprintln(o.Out, "pod/"+p.Name)
				}
			}
		}
		return nil
	}

	for i, e := range explanations {
		if i > 0 {
			fmt.Fprintln(o.Out)
		}
		terminal.Clean(e)
		e.print(o.Out, o.output == "wide")
	}
	return nil
}

// Of returns the kind and the name of the object.
func (e *Explanation) Of() string {
	return e.Kind + " " + strings.TrimPrefix(e.Namespace+"/"+e.Name, "/")
}

// Headline returns the number of pods in each state.
func (e *Explanation) Headline() string {
	counts := map[State]int{}
	for _, p := range e.Pods {
		counts[p.State]++
	}

	text := fmt.Sprintf("%s: %d done, %d next, %d waiting",
		wording.Count(len(e.Pods), "pod"), counts[Done], counts[Next], counts[Waiting])
	if e.Create > 0 {
		text += fmt.Sprintf(", %d to be created", e.Create)
	}

	return text
}

func (e *Explanation) print(out io.Writer, wide bool) {
	color := printers.AllowsColorOutput(out)
	if e.told {
		fmt.Fprintf(out, "%s:\n", e.Of())
	} else {
		fmt.Fprintf(out, "%s: %s\n", e.Of(), e.Headline())
	}

	if e.UpdateRevision != "" {
		fmt.Fprintf(out, "Update revision: %s\n", e.UpdateRevision)
	}
	for _, line := range slices.Concat(e.Summary, prefixed("Problem: ", e.Problems)) {
		fmt.Fprintln(out, line)
	}
	if e.Waiting != "" {
		fmt.Fprintln(out, paint(color, Waiting, "Waiting for "+e.Waiting))
	}

	// If all pods are done, the warnings are of the past.
	if e.told || slices.ContainsFunc(e.Pods, func(p Pod) bool { return p.State != Done }) {
		for _, warning := range e.Warnings {
			fmt.Fprintln(out, "Warning", warning)
		}
	}

	for _, note := range e.Notes {
		fmt.Fprintln(out, "Note:", note)
	}

	if len(e.Pods) == 0 {
		return
	}

	fmt.Fprintln(out)
	table := printers.GetNewTabWriter(out)
	defer func() { _ = table.Flush() }()

	if !wide && len(e.Pods) > grouped {
		e.groups(table, color)
		return
	}

	header := "POD\tSTATE\tREASON\tUNTIL\tMESSAGE"
	if wide {
		header = "NAMESPACE\tPOD\tREVISION\tSTATE\tACTION\tREASON\tUNTIL\tMESSAGE"
	}
	fmt.Fprintln(table, header)

	for _, p := range e.Pods {
		if wide {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
				p.Namespace, p.Name, cmp.Or(p.Revision, "-"), paint(color, p.State, string(p.State)),
				p.Action, p.Reason, e.until(p), p.Message)
		} else {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n",
				p.Name, paint(color, p.State, string(p.State)), p.Reason, e.until(p), p.Message)
		}
	}
}

// groups prints the pods of a large workload, grouped by state and reason.
func (e *Explanation) groups(table io.Writer, color bool) {
	type key struct {
		state  State
		reason string
	}

	groups := map[key][]Pod{}
	var keys []key
	for _, p := range e.Pods {
		k := key{p.State, p.Reason}
		if groups[k] == nil {
			keys = append(keys, k)
		}
		groups[k] = append(groups[k], p)
	}

	order := []State{Waiting, Next, Done}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(
			cmp.Compare(slices.Index(order, a.state), slices.Index(order, b.state)),
			cmp.Compare(len(groups[b]), len(groups[a])))
	})

	fmt.Fprintln(table, "PODS\tSTATE\tREASON\tSUCH AS\tMESSAGE")
	for _, k := range keys {
		first := groups[k][0]
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n",
			len(groups[k]), paint(color, k.state, string(k.state)), k.reason, first.Name, first.Message)
	}
}

// until returns how long a pod still waits, or "-" if that does not depend on time alone.
func (e *Explanation) until(p Pod) string {
	if p.Until == nil {
		return "-"
	}
	return duration.HumanDuration(max(p.Until.Sub(e.now), 0).Round(time.Second))
}

// paint colors a text by state, if color is set.
func paint(color bool, state State, text string) string {
	if !color {
		return text
	}

	return map[State]string{Done: "\x1b[32m", Next: "\x1b[36m", Waiting: "\x1b[33m"}[state] + text + "\x1b[0m"
}

func prefixed(prefix string, texts []string) []string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = prefix + text
	}
	return all
}
