package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func explained(pods int) *Explanation {
	e := &Explanation{Kind: "CloneSet", Namespace: "shop", Name: "web", UpdateRevision: "web-6d7b875cfb",
		Summary: []string{"4 of 5 pods, 2 at web-6d7b875cfb, 2 old; partition 1, maxUnavailable 1, maxSurge 0; 1 unavailable"},
		Waiting: "UpdatedPodsUnavailable: waiting for 1 updated pod to become available. pod web-1: container app: ErrImagePull",
		Notes:   []string{"you may not list nodes: all nodes are taken to be alive"}, Problems: []string{"FailedUpdate: pods may not be changed"},
		Warnings: []string{"3m ago, RolloutWaiting: NotReady: 1 of 4 pods waited for"}, Create: 1, now: noon}
	for i := range pods {
		p := Pod{Namespace: "shop", Name: fmt.Sprint("web-", i), Revision: "web-7bcf777ff5"}
		switch i % 4 {
		case 0:
			p.State, p.Action, p.Reason, p.Message, p.Revision = Done, "keep", "UpToDate", "available at web-6d7b875cfb", "web-6d7b875cfb"
		case 1:
			p.State, p.Action, p.Reason, p.Message, p.Revision = Waiting, "wait", "NotReady", "container app: ErrImagePull", "web-6d7b875cfb"
		case 2:
			p.State, p.Action, p.Reason, p.Message = Next, "update in place", "Outdated", "from web-7bcf777ff5 to web-6d7b875cfb: image of app to nginx:2"
			p.Restarts = []string{"app"}
		default:
			p.State, p.Action, p.Reason, p.Message = Waiting, "wait", "MinReadySeconds", "ready for 12 of 30 s"
			p.Until = &metav1.Time{Time: noon.Add(18 * time.Second)}
		}
		e.Pods = append(e.Pods, p)
	}
	return e
}

// TestWhyPrintsFewPodsAndManyInGroups shows what why prints: a few pods, many in groups, and all formats.
func TestWhyPrintsFewPodsAndManyInGroups(t *testing.T) {
	for name, test := range map[string]struct {
		output string
		pods   []int
	}{
		"why": {"", []int{4}}, "why-none": {"", []int{0}}, "why-many": {"", []int{41}}, "why-wide": {"wide", []int{4}}, "why-two": {"", []int{1, 2}},
		"why-json": {"json", []int{4}}, "why-yaml": {"yaml", []int{1, 1}}, "why-name": {"name", []int{4}},
	} {
		t.Run(name, func(t *testing.T) {
			out := &bytes.Buffer{}
			o := &whyOptions{IOStreams: genericiooptions.IOStreams{Out: out}, output: test.output}
			var all []*Explanation
			for _, pods := range test.pods {
				all = append(all, explained(pods))
			}
			if err := o.print(all); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, name, out.String())
		})
	}
	if got := paint(true, Waiting, "waiting"); got != "\x1b[33mwaiting\x1b[0m" {
		t.Errorf("a word in colour: got %q, want it in yellow", got)
	}
}

// TestPlanPrintsAndSetsItsExitCode shows what plan prints, and its exit codes (OPS-192 (part): that of
// errors is shown by TestPlanAndWhy).
func TestPlanPrintsAndSetsItsExitCode(t *testing.T) {
	inPlace := func(names ...string) (steps []Step) {
		for _, name := range names {
			steps = append(steps, Step{Pod: name, Action: "update in place", Restarts: []string{"app"}, Message: "image of app to nginx:2"})
		}
		return steps
	}
	kept := Pod{Name: "web-e", State: Done, Reason: "Partition", Message: "partition keeps 1 pod at its revision"}
	base := Preview{Kind: "CloneSet", Namespace: "shop", Name: "web", UpdateRevision: "web-6d7b875cfb", TakesSeconds: 95}
	with := func(change func(*Preview)) *Preview {
		p := base
		change(&p)
		return &p
	}
	for name, test := range map[string]struct {
		preview *Preview
		output  string
		code    int
	}{
		"plan-nothing": {with(func(p *Preview) { p.Unchanged, p.TakesSeconds = true, 0 }), "", 0},
		"plan-new": {with(func(p *Preview) {
			p.New, p.Waves = true, []Wave{{Steps: []Step{{Action: "create"}, {Action: "create"}}}}
		}), "", 2},
		"plan-in-place": {with(func(p *Preview) {
			p.Waves = []Wave{{Steps: inPlace("web-a", "web-b", "web-c", "web-d")}, {AfterSeconds: 65, Hooks: []string{"inPlaceUpdate"}, Steps: inPlace("web-f")}}
			p.Left, p.Notes = []Pod{kept}, []string{"the flags of the manager are not known"}
		}), "", 2},
		"plan-wide": {with(func(p *Preview) { p.Waves = []Wave{{Steps: inPlace("web-a", "web-b", "web-c", "web-d")}} }), "wide", 2},
		"plan-recreate": {with(func(p *Preview) {
			p.Waves = []Wave{{Steps: []Step{{Pod: "web-0", Action: "delete", Message: "recreated because the policy is ReCreate"}}}, {Steps: []Step{{Pod: "web-0", Action: "create"}}}}
		}), "", 3},
		"plan-held": {with(func(p *Preview) {
			p.Waves = []Wave{{Steps: inPlace("web-a")}}
			p.Held, p.Warnings = "PodUnavailableBudget: budget allows 0 more", map[string]string{"FailedUpdate": "no"}
			p.Left = []Pod{{Name: "web-b", State: Waiting, Reason: "PodUnavailableBudget", Message: "budget allows 0 more"}}
		}), "", 4},
		"plan-json": {with(func(p *Preview) { p.Waves = []Wave{{Steps: inPlace("web-a")}} }), "json", 2},
		"plan-yaml": {with(func(p *Preview) { p.Waves = []Wave{{Steps: inPlace("web-a")}} }), "yaml", 2},
	} {
		t.Run(name, func(t *testing.T) {
			out := &bytes.Buffer{}
			o := &planOptions{IOStreams: genericiooptions.IOStreams{Out: out}, output: test.output}
			if err := o.print([]*Preview{test.preview}); err != nil {
				t.Fatal(err)
			}
			if got := test.preview.code(); got != test.code {
				t.Errorf("exit code %d, want %d", got, test.code)
			}
			golden.Compare(t, name, out.String())
		})
	}
}

// TestTargets: arguments name objects as those of kubectl do.
func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"clone/web": "[{clone web}]", "clone/web asts/db": "[{clone web} {asts db}]", "clone web db": "[{clone web} {clone db}]",
		"": "", "clone": "", "clone/": "", "/web": "", "clone/a/b": "", "clone/web db": "", "clone web asts/db": "",
	} {
		targets, err := Targets(strings.Fields(text))
		if got := fmt.Sprint(targets); want == "" && err == nil {
			t.Errorf("targets of %q: got %s, want an error", text, got)
		} else if want != "" && err != nil {
			t.Errorf("targets of %q: %v", text, err)
		} else if want != "" && got != want {
			t.Errorf("targets of %q: got %s, want %s", text, got, want)
		}
	}
}

// Names are those that kubectl takes: with a version, with a group, and short.
func TestNamesAreThoseThatKubectlTakes(t *testing.T) {
	s := plugintest.NewIn(t, "shop", "v1beta1", `{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web, uid: set}, spec: {replicas: 1,
selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: app, image: a}]}}}}`)
	for _, name := range []string{"clone", "cloneset", "CloneSet", "clonesets.apps.kruise.io", "clonesets.v1beta1.apps.kruise.io", "cloneset.v1beta1.apps.kruise.io"} {
		if err := s.Run(t, NewWhy, "why", name+"/web").Err; err != nil {
			t.Errorf("why %s/web: %v", name, err)
		}
	}
	for _, name := range []string{"statefulsets.v1beta1.apps.kruise.io", "clonesets.v7.apps.kruise.io", "nothing"} {
		if err := s.Run(t, NewWhy, "why", name+"/web").Err; err == nil {
			t.Errorf("why %s/web: no error", name)
		}
	}
}

// What is printed with -o is, as of kubectl, one object alone as it is, and any other number a List: scripts
// find the items of several.
func TestSeveralAreAList(t *testing.T) {
	for name, tt := range map[string]struct {
		values []string
		want   any
	}{
		"none": {nil, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": []any{}}},
		"one":  {[]string{"a"}, "a"},
		"two":  {[]string{"a", "b"}, map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": []any{"a", "b"}}},
	} {
		var out strings.Builder
		var got any
		if err := document(&out, "json", tt.values); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: printed (-want +got):\n%s", name, diff)
		}
	}
}
