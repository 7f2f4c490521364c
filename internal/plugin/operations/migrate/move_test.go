package migrate

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

// quick is the command with names that a test knows, and without waiting.
func quick(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(f, streams, time.Microsecond, func() string { return "m1" })
}

const deployment = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {team: shop}
  annotations: {note: kept, deployment.kubernetes.io/revision: "3", kubectl.kubernetes.io/last-applied-configuration: "{}"}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  minReadySeconds: 7
  revisionHistoryLimit: 4
  progressDeadlineSeconds: 600
  paused: true
  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 25%, maxSurge: 1}}
  template: {metadata: {labels: {app: web}}, spec: {fieldOfTomorrow: 1, containers: [{name: app, image: i}]}}
status: {observedGeneration: 1, replicas: 5, updatedReplicas: 5, availableReplicas: 5}
`

func cloneSet(version, name string, replicas int) string {
	strategy := "{type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2, maxSurge: 10%, paused: true}}"
	if version == "v1alpha1" {
		strategy = "{type: InPlaceIfPossible, maxUnavailable: 2, maxSurge: 10%, paused: true}"
	}
	return fmt.Sprintf(`
apiVersion: apps.kruise.io/%s
kind: CloneSet
metadata: {name: %s, annotations: {note: kept}}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  updateStrategy: %s
  template: {metadata: {labels: {app: web}}, 
    spec: {readinessGates: [{conditionType: InPlaceUpdateReady}, {conditionType: mine}], containers: [{name: app}]}}
status: {observedGeneration: 1, replicas: %[3]d, updatedReplicas: %[3]d, availableReplicas: %[3]d}
`, version, name, replicas, strategy)
}

func play(t *testing.T, s *plugintest.Server, lines ...string) (all string) {
	for _, line := range lines {
		all += s.Play(t, quick, append([]string{"migrate"}, strings.Fields(line)...)...)
	}
	return all
}

// testCreate: with --create the target gets what the source has, no replicas unless --copy is given, and is
// not overwritten; and so back from a CloneSet. What makes no sense is refused.
func testCreate(t *testing.T) {
	for _, version := range []string{"v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			s := plugintest.NewIn(t, "shop", version, deployment, cloneSet(version, "back", 3), cloneSet(version, "claims", 3))
			s.Change(t, "clonesets", "claims", func(o map[string]any) {
				o["spec"].(map[string]any)["volumeClaimTemplates"] = []any{map[string]any{}}
				o["status"].(map[string]any)["observedGeneration"] = int64(2)
			})
			golden.Compare(t, "create-"+version, play(t, s,
				"CloneSet --from Deployment -n shop --src-name web --create --dry-run=client -o yaml",
				"CloneSet --from Deployment -n shop --src-name web --create --dry-run=server",
				"CloneSet --from Deployment -n shop --src-name web --create",
				"CloneSet --from Deployment -n shop --src-name web --create",
				"clone --from deploy -n shop --src-name web --dst-name copied --create --copy",
				"Deployment --from CloneSet -n shop --src-name back --create --copy -o yaml",
				"Deployment --from CloneSet -n shop --src-name claims --create",
				"CloneSet --from Deployment -n shop --src-name nothing --create",
				"CloneSet --from Deployment --src-name web --create",
				"CloneSet --from Deployment -n shop --create",
				"CloneSet DaemonSet --from Deployment -n shop --src-name web",
				"CloneSet -n shop --src-name web", "CloneSet --from CloneSet -n shop --src-name web", "Job --from apps -n shop --src-name web",
				"CloneSet --from Deployment -n shop --src-name web --copy",
				"CloneSet --from Deployment -n shop --src-name web --max-surge=0",
				"CloneSet --from Deployment -n shop --src-name web --replicas=-2",
			))
		})
	}
}

// fleet is a Deployment and a CloneSet whose pods come and go one at a time, whenever somebody looks.
type fleet struct {
	*plugintest.Server
	t           *testing.T
	most        int64
	stuck       bool
	unobserved  bool
	least, want int64
}

func newFleet(t *testing.T, version string, source, target int64) *fleet {
	from := strings.Replace(deployment, "replicas: 5", fmt.Sprintf("replicas: %d", source), 1)
	f := &fleet{Server: plugintest.NewIn(t, "shop", version, from, cloneSet(version, "web", int(target))), t: t, want: source + target}
	f.Change(t, "deployments", "web", func(o map[string]any) {
		o["status"] = map[string]any{"observedGeneration": int64(1), "availableReplicas": source}
	})
	f.least = f.want
	f.BeforeRead = f.live
	f.After = func(*unstructured.Unstructured) { f.count() }
	return f
}

func (f *fleet) live(r plugintest.Request) error {
	if r.Name == "" || f.Get(f.t, r.Resource, r.Name) == nil {
		return nil
	}
	f.Change(f.t, r.Resource, r.Name, func(o map[string]any) {
		spec, _, _ := unstructured.NestedInt64(o, "spec", "replicas")
		available, _, _ := unstructured.NestedInt64(o, "status", "availableReplicas")
		generation, _, _ := unstructured.NestedInt64(o, "metadata", "generation")
		switch {
		case f.unobserved:
			generation--
		case available > spec:
			available--
		case available < spec && !f.stuck:
			available++
		}
		o["status"] = map[string]any{"observedGeneration": generation, "availableReplicas": available}
	})
	f.count()
	return nil
}

// count keeps how many replicas there were at least available, and at most wanted.
func (f *fleet) count() {
	wanted, available := int64(0), int64(0)
	for _, resource := range []string{"deployments", "clonesets"} {
		if o := f.Get(f.t, resource, "web"); o != nil {
			spec, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
			now, _, _ := unstructured.NestedInt64(o.Object, "status", "availableReplicas")
			wanted, available = wanted+spec, available+min(now, spec)
		}
	}
	f.most, f.least = max(f.most, wanted), min(f.least, available)
}

func (f *fleet) replicas() string {
	var text []string
	for _, resource := range []string{"deployments", "clonesets"} {
		o := f.Get(f.t, resource, "web")
		if o == nil {
			text = append(text, "none")
			continue
		}
		n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		text = append(text, fmt.Sprint(n))
		if note := o.GetAnnotations()[recordKey]; note != "" {
			text = append(text, note)
		}
	}
	return strings.Join(text, " ")
}

const forward = "CloneSet --from Deployment -n shop --src-name web"

// OPS-167: with --create the target is made like the source. Without, replicas are moved in steps, as many
// more at a time as --max-surge says, and none is given before all of the target are available; it tells how
// far it is, and ends with an error that says so. Interrupted between any two requests, or with any answer
// lost, it goes on and ends as if nothing had been.
func TestMove(t *testing.T) {
	t.Run("create", testCreate)
	t.Run("steps", testNext)
	t.Run("ends", testMoveEnds)
	t.Run("interrupted", testMoveInterrupted)
	for name, tt := range map[string]struct {
		source, target, surge int64
		line, want            string
	}{
		"all":             {5, 0, 1, forward, "0 5"},
		"some":            {5, 2, 1, forward + " --replicas=3", "2 5"},
		"two-at-a-time":   {5, 0, 2, forward + " --max-surge=2", "0 5"},
		"large-surge":     {3, 0, 9, forward + " --max-surge=9", "0 3"},
		"all-by-number":   {3, 0, 1, forward + " --replicas=3", "0 3"},
		"none":            {3, 0, 1, forward + " --replicas=0", "3 0"},
		"back":            {1, 4, 1, "Deployment --from CloneSet -n shop --src-name web", "5 0"},
		"too-many":        {3, 0, 1, forward + " --replicas=4", "3 0"},
		"dry-client":      {3, 0, 1, forward + " --dry-run=client", "3 0"},
		"dry-server":      {3, 0, 1, forward + " --dry-run=server", "3 0"},
		"no-such-target":  {3, 0, 1, forward + " --dst-name=nothing", "3 0"},
		"no-such-source":  {3, 0, 1, "CloneSet --from Deployment -n shop --src-name nothing --dst-name web", "3 0"},
		"field-manager":   {1, 0, 1, forward + " --field-manager=me", "0 1"},
		"plenty-of-spare": {2, 10, 1, forward, "0 12"},
	} {
		for _, version := range []string{"v1beta1", "v1alpha1"} {
			t.Run(name+"-"+version, func(t *testing.T) {
				f := newFleet(t, version, tt.source, tt.target)
				text := f.Play(t, quick, append([]string{"migrate"}, strings.Fields(tt.line)...)...)
				golden.Compare(t, "move-"+name+"-"+version, text)
				if got := f.replicas(); got != tt.want {
					t.Errorf("replicas: got %s, want %s", got, tt.want)
				}
				if f.most > f.want+tt.surge {
					t.Errorf("pods at once: got %d, want %d at most", f.most, f.want+tt.surge)
				}
				if f.least < f.want {
					t.Errorf("available pods: got %d, want %d at least", f.least, f.want)
				}
			})
		}
	}
}

// testNext: the formulas of the steps.
func testNext(t *testing.T) {
	at := func(replicas, available, observed int64) *side {
		o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"generation": int64(2)}, "spec": map[string]any{"replicas": replicas},
			"status": map[string]any{"availableReplicas": available, "observedGeneration": observed}}}
		return &side{object: o}
	}
	for name, tt := range map[string]struct {
		all, got, given, surge int64
		source, target         *side
		want                   step
	}{
		"begin":                        {5, 0, 0, 2, at(5, 5, 2), at(0, 0, 2), step{raise: 2}},
		"no more than there are":       {5, 4, 4, 3, at(1, 1, 2), at(4, 4, 2), step{raise: 1}},
		"surge is used up":             {5, 2, 0, 2, at(5, 5, 2), at(2, 1, 2), step{}},
		"all available":                {5, 2, 0, 2, at(5, 5, 2), at(2, 2, 2), step{lower: 2}},
		"source has fewer":             {5, 2, 0, 2, at(1, 1, 2), at(2, 2, 2), step{lower: 1}},
		"raise before lower":           {5, 2, 0, 3, at(5, 5, 2), at(2, 2, 2), step{raise: 1}},
		"more available than wanted":   {5, 2, 0, 2, at(5, 5, 2), at(2, 3, 2), step{}},
		"source not observed":          {5, 0, 0, 2, at(5, 5, 1), at(0, 0, 2), step{}},
		"target not observed":          {5, 2, 0, 2, at(5, 5, 2), at(2, 2, 1), step{}},
		"last":                         {5, 5, 4, 1, at(1, 1, 2), at(5, 5, 2), step{lower: 1}},
		"source was lowered by others": {5, 5, 4, 1, at(0, 0, 2), at(5, 5, 2), step{}},
	} {
		if got := next(tt.all, tt.got, tt.given, tt.surge, tt.source, tt.target); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// testMoveEnds: it ends with an error that says how far it got: in time although nothing happens, when a
// workload is deleted, when somebody else has scaled the source down, and when another move is not finished.
func testMoveEnds(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(*fleet)
		args  string
		want  []string
	}{
		"time":          {func(f *fleet) { f.stuck = true }, "--timeout-seconds=1", []string{"timed out after 1 seconds", "has got 1 of 5", "has given 0"}},
		"never noticed": {func(f *fleet) { f.unobserved = true }, "--timeout-seconds=1", []string{"timed out after 1 seconds", "has got 0 of 5"}},
		"deleted": {func(f *fleet) {
			f.After = func(o *unstructured.Unstructured) {
				if n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); o.GetKind() == "CloneSet" && n == 2 {
					f.Delete(t, "deployments", "web")
				}
			}
		}, "", []string{"deployment.apps/web does not exist", "has got 2 of 5", "has given 1"}},
		"scaled down": {func(f *fleet) {
			f.After = func(o *unstructured.Unstructured) {
				if n, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas"); o.GetKind() == "Deployment" && n == 3 {
					f.Change(t, "deployments", "web", func(o map[string]any) { o["spec"].(map[string]any)["replicas"] = int64(0) })
				}
			}
		}, "", []string{"no replicas left", "has got 3 of 5", "has given 2"}},
		"another move": {func(f *fleet) {
			f.Change(t, "clonesets", "web", func(o map[string]any) {
				o["metadata"].(map[string]any)["annotations"] = map[string]any{recordKey: `{"id":"x","source":"deployment.apps/other","replicas":3,"moved":1}`}
			})
		}, "", []string{"3 replicas from deployment.apps/other", "not finished"}},
		"another number": {func(f *fleet) {
			f.Change(t, "clonesets", "web", func(o map[string]any) {
				o["metadata"].(map[string]any)["annotations"] = map[string]any{recordKey: `{"id":"x","source":"deployment.apps/web","replicas":3,"moved":1}`}
			})
		}, "--replicas=2", []string{"not finished"}},
		"broken record": {func(f *fleet) {
			f.Change(t, "clonesets", "web", func(o map[string]any) {
				o["metadata"].(map[string]any)["annotations"] = map[string]any{recordKey: `{`}
			})
		}, "", []string{recordKey}},
		"another that begins at the same time": {func(f *fleet) {
			once := true
			f.Before = func(r plugintest.Request) error {
				if once && strings.HasPrefix(r.Resource, "clonesets") {
					once = false
					f.Change(t, "clonesets", "web", func(o map[string]any) {
						o["metadata"].(map[string]any)["annotations"] = map[string]any{recordKey: `{"id":"other","source":"deployment.apps/web","replicas":5,"moved":1}`}
					})
				}
				return nil
			}
		}, "", []string{"somebody else goes on with this move", "has got 0 of 5"}},
		"the way back of one that is not finished": {func(f *fleet) {
			f.Change(t, "clonesets", "web", func(o map[string]any) {
				o["metadata"].(map[string]any)["annotations"] = map[string]any{recordKey: `{"id":"x","moved":2}`}
			})
			f.Change(t, "deployments", "web", func(o map[string]any) {
				o["metadata"].(map[string]any)["annotations"] = map[string]any{recordKey: `{"id":"x","source":"cloneset.apps.kruise.io/web","replicas":3,"moved":2}`}
			})
		}, "", []string{"a move of 3 replicas from cloneset.apps.kruise.io/web to deployment.apps/web is not finished"}},
		"another at the same time": {func(f *fleet) {
			once := true
			f.Before = func(r plugintest.Request) error {
				if once && strings.HasPrefix(r.Resource, "clonesets") {
					once = false
					f.Change(t, "clonesets", "web", func(o map[string]any) {
						o["metadata"].(map[string]any)["annotations"] = map[string]any{recordKey: `{"id":"m1","source":"deployment.apps/web","replicas":5,"moved":1}`}
					})
				}
				return nil
			}
		}, "", []string{"somebody else goes on with this move"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, "v1beta1", 5, 0)
			tt.spoil(f)
			err := f.Run(t, quick, append([]string{"migrate"}, strings.Fields(forward+" "+tt.args)...)...).Err
			for _, want := range tt.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
		})
	}
}

// dies runs the command until its connection dies with the n-th request, whose answer is lost, or which does
// not arrive; then once more. It tells whether the command lived longer.
func dies(t *testing.T, s *plugintest.Server, n int, arrives bool, args []string) (survived bool) {
	t.Helper()
	dead := false
	s.Fault = func(before bool, _, _ string) error {
		if before {
			n--
		}
		dead = dead || n == 0 && before != arrives
		if dead {
			return errors.New("died")
		}
		return nil
	}
	err := s.Run(t, quick, args...).Err
	s.Fault = nil
	if (err != nil) != dead {
		t.Fatalf("dead %t, but %v", dead, err)
	}
	if err := s.Run(t, quick, args...).Err; err != nil && dead {
		t.Fatalf("it does not go on: %v", err)
	}
	return !dead
}

// testMoveInterrupted: interruption leaves a state from which the same command can go on.
func testMoveInterrupted(t *testing.T) {
	for _, arrives := range []bool{true, false} {
		for n := 1; ; n++ {
			f := newFleet(t, "v1beta1", 3, 1)
			args := append([]string{"migrate"}, strings.Fields(forward)...)
			survived := dies(t, f.Server, n, arrives, args)
			if got := f.replicas(); got != "0 4" {
				t.Fatalf("died with request %d, arrives %t: got replicas %s, want 0 4", n, arrives, got)
			}
			if f.most > 5 {
				t.Fatalf("died with request %d, arrives %t: got %d pods at once, want 5 at most", n, arrives, f.most)
			}
			if f.least < 4 {
				t.Fatalf("died with request %d, arrives %t: got %d available, want 4 at least", n, arrives, f.least)
			}
			if survived {
				if n < 10 {
					t.Fatalf("only %d requests", n)
				}
				break
			}
		}
	}
}

// What a move left at its source, interrupted at its very end, is in the way of no other move.
func TestAForgottenRecordIsInTheWayOfNoMove(t *testing.T) {
	f := newFleet(t, "v1beta1", 5, 0)
	f.Change(t, "clonesets", "web", func(o map[string]any) {
		o["metadata"].(map[string]any)["annotations"] = map[string]any{recordKey: `{"id":"old","moved":5}`}
	})
	if err := f.Run(t, quick, append([]string{"migrate"}, strings.Fields(forward)...)...).Err; err != nil {
		t.Errorf("migrate: %v", err)
	}
	if got := f.replicas(); got != "0 5" {
		t.Errorf("replicas: got %s, want 0 5", got)
	}
	if left := f.Get(t, "clonesets", "web").GetAnnotations()[recordKey]; left != "" {
		t.Errorf("record of the move: got %s, want none", left)
	}
}
