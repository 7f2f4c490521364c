package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/plugin/terminal"
)

func (o *planOptions) print(previews []*Preview) error {
	if o.output == "json" || o.output == "yaml" {
		return document(o.Out, o.output, previews)
	}
	for i, p := range previews {
		if i > 0 {
			fmt.Fprintln(o.Out)
		}
		terminal.Clean(p)
		p.print(o.Out, o.output == "wide")
	}
	return nil
}

// Headline summarizes in one sentence what happens to the pods.
func (p *Preview) Headline() string {
	counts := map[string]int{}
	var actions []string
	for _, wave := range p.Waves {
		for _, step := range wave.Steps {
			action := map[string]string{
				"create":          "created",
				"update in place": "updated in place",
				"delete":          "deleted",
				"recreate":        "recreated",
				"adopt":           "adopted",
				"release":         "given up",
				"upgrade":         "upgraded in place",
				"reset":           "reset",
			}[step.Action]
			if counts[cmp.Or(action, step.Action)]++; counts[cmp.Or(action, step.Action)] == 1 {
				actions = append(actions, cmp.Or(action, step.Action))
			}
		}
	}

	if len(actions) == 0 {
		return "no pod is touched"
	}

	slices.Sort(actions)
	for i, action := range actions {
		actions[i] = wording.Count(counts[action], "pod") + " " + action
	}

	return fmt.Sprintf("%s, in %s, %s at least",
		strings.Join(actions, ", "), wording.Count(len(p.Waves), "wave"), human(p.TakesSeconds))
}

func human(seconds int64) string { return duration.HumanDuration(time.Duration(seconds) * time.Second) }

func (p *Preview) print(out io.Writer, wide bool) {
	color := printers.AllowsColorOutput(out)
	words := ""
	switch {
	case p.New:
		words = " (new)"
	case p.Unchanged:
		words = " (unchanged)"
	}

	fmt.Fprintf(out, "%s %s%s: %s\n",
		p.Kind, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), words, p.Headline())

	if p.UpdateRevision != "" {
		fmt.Fprintf(out, "Update revision: %s\n", p.UpdateRevision)
	}
	for _, note := range p.Notes {
		fmt.Fprintln(out, "Note:", note)
	}

	table := printers.GetNewTabWriter(out)
	if len(p.Waves) > 0 {
		fmt.Fprintln(out)
		fmt.Fprintln(table, "WAVE\tAFTER\tPODS\tACTION\tRESTARTS\tWHY")
	}
	for i := range p.Waves {
		p.Waves[i].print(table, i+1, wide)
	}
	_ = table.Flush()

	if len(p.Left) > 0 {
		fmt.Fprintln(out, "\nIn the end:")
		e := Explanation{Pods: p.Left}
		table := printers.GetNewTabWriter(out)
		e.groups(table, color)
		_ = table.Flush()
	}

	for _, reason := range slices.Sorted(maps.Keys(p.Warnings)) {
		fmt.Fprintf(out, "Warning %s: %s\n", reason, p.Warnings[reason])
	}
	if p.Held != "" {
		fmt.Fprintln(out, paint(color, Waiting, "It does not end by itself: "+p.Held))
	}
}

// print prints the wave. Steps with the same action, restarts and reason share a row.
func (w *Wave) print(table io.Writer, number int, wide bool) {
	type key struct{ action, restarts, why string }
	var keys []key
	names := map[key][]string{}
	for _, step := range w.Steps {
		why := step.Message
		if len(w.Hooks) > 0 {
			why = strings.TrimPrefix(why+"; after hook "+strings.Join(w.Hooks, ", "), "; ")
		}

		k := key{step.Action, cmp.Or(strings.Join(step.Restarts, ","), "-"), cmp.Or(why, "-")}
		if names[k] == nil {
			keys = append(keys, k)
		}
		names[k] = append(names[k], cmp.Or(step.Pod, "(new)"))
	}

	for _, k := range keys {
		shown := strings.Join(names[k], ", ")
		if few := 3; !wide && len(names[k]) > few {
			shown = fmt.Sprintf("%d: %s ...", len(names[k]), strings.Join(names[k][:few], ", "))
		}
		if all := strings.Count(shown, "(new)"); all > 1 {
			shown = fmt.Sprintf("%d new", len(names[k]))
		}

		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\n",
			number, human(w.AfterSeconds), shown, k.action, k.restarts, k.why)
	}
}
