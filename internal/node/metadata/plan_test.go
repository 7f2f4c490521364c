package metadata

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/inplace"
	"github.com/afloat-project/afloat/internal/node/runtime"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

const noEnv = 86995377 // ND-104

// pod has containers app, which reads label v as V, and side; both run as <name>-1.
func pod(label string, change ...func(*corev1.Pod)) *corev1.Pod {
	yes := true
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Labels: map[string]string{"v": label},
			Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1beta1", Kind: "CloneSet", Name: "c",
				Controller: &yes}}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "proxy", Image: "proxy:1", RestartPolicy: &always}, {Name: "once", Image: "once:1"}},
			Containers: []corev1.Container{
				{Name: "side", Image: "side:1"},
				{Name: "app", Image: "app:1",
					Env: []corev1.EnvVar{{Name: "V",
						ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['v']"}}}}},
			},
		},
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	for _, name := range []string{"app", "side"} {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
			corev1.ContainerStatus{Name: name, ContainerID: "containerd://" + name + "-1", State: running})
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func updatingPod(p *corev1.Pod) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: pub.InPlaceUpdateReady, Status: corev1.ConditionFalse})
}

func report(entries ...inplace.RuntimeContainer) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		text, _ := json.Marshal(inplace.RuntimeMeta{Containers: entries})
		p.Annotations[pub.RuntimeContainersMeta] = string(text)
	}
}

func state(s inplace.State) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		text, _ := json.Marshal(s)
		p.Annotations[pub.InPlaceUpdateState] = string(text)
	}
}

func container(name string, n int, image string, change ...func(*runtime.Container)) runtime.Container {
	c := runtime.Container{ID: fmt.Sprintf("containerd://%s-%d", name, n), Name: name, PodNamespace: "ns", PodName: "p", PodUID: "u",
		Running:   true,
		CreatedAt: time.Unix(int64(n), 0), RestartCount: int32(n - 1), PlainHash: number(inplace.PlainHash(name, image)), Image: image}
	for _, ch := range change {
		ch(&c)
	}
	return c
}

func row(name string, n int, plain, env uint64) inplace.RuntimeContainer {
	return inplace.RuntimeContainer{Name: name, ContainerID: fmt.Sprintf("containerd://%s-%d", name, n), RestartCount: int32(n - 1),
		Hashes: inplace.RuntimeHashes{PlainHash: plain, ExtractedEnvFromMetadataHash: env}}
}

func hash(value string) uint64 {
	p := pod(value)
	return number(inplace.EnvHash(p, &p.Spec.Containers[1]))
}

// ND-081, ND-083, ND-084, ND-085, ND-086, ND-087, ND-091, ND-094, ND-101, ND-103, ND-106, ND-110, ND-111,
// ND-116, ND-194, IPU-123, IPU-319, IPU-322.
func TestPlan(t *testing.T) {
	appHash, sideHash := number(inplace.PlainHash("app", "app:1")), number(inplace.PlainHash("side", "side:1"))
	both := []runtime.Container{container("app", 1, "app:1"), container("side", 1, "side:1")}
	known := map[string]map[string]string{"containerd://app-1": {"V": "a"}}
	reported := report(row("app", 1, appHash, hash("a")), row("side", 1, sideHash, noEnv))
	exited := func(c *runtime.Container) { c.Running, c.Exited = false, true }
	type want struct {
		Report   []inplace.RuntimeContainer
		Read     []string
		Restarts []string
		Left     int
	}
	for name, test := range map[string]struct {
		pod        *corev1.Pod
		containers []runtime.Container
		unknown    bool
		unreadable bool
		gateOff    bool
		want       want
	}{
		"ND-083 first report, in the order of the statuses": {pod: pod("a"), containers: both,
			want: want{Report: []inplace.RuntimeContainer{row("app", 1, appHash, hash("a")), row("side", 1, sideHash, noEnv)}}},
		"ND-083 one that the runtime does not have is left out": {pod: pod("a"), containers: both[1:],
			want: want{Report: []inplace.RuntimeContainer{row("side", 1, sideHash, noEnv)}}},
		"ND-083 one that is not in the spec is left out": {pod: pod("a", func(p *corev1.Pod) {
			debug := corev1.ContainerStatus{Name: "debug", ContainerID: "containerd://debug-1"}
			p.Status.ContainerStatuses = append([]corev1.ContainerStatus{debug}, p.Status.ContainerStatuses...)
		}), containers: append([]runtime.Container{container("debug", 1, "debug:1")}, both...),
			want: want{Report: []inplace.RuntimeContainer{row("app", 1, appHash, hash("a")), row("side", 1, sideHash, noEnv)}}},
		"environment not known: absent and asked for": {pod: pod("a"), containers: both, unknown: true,
			want: want{Report: []inplace.RuntimeContainer{row("app", 1, appHash, 0), row("side", 1, sideHash, noEnv)},
				Read: []string{"containerd://app-1"}}},
		"ND-182 without the gate no environment": {pod: pod("a"), containers: both, unknown: true, gateOff: true,
			want: want{Report: []inplace.RuntimeContainer{row("app", 1, appHash, 0), row("side", 1, sideHash, 0)}}},
		"equal: nothing is written": {pod: pod("a", reported), containers: both},
		"ND-086 an entry is kept as it is, the missing environment is added": {pod: pod("a",
			report(row("app", 1, 5, 0), row("side", 1, sideHash, noEnv))), containers: both,
			want: want{Report: []inplace.RuntimeContainer{row("app", 1, 5, hash("a")), row("side", 1, sideHash, noEnv)}}},
		"ND-086 what an entry says of the environment is kept, too, though another one is known": {containers: both,
			pod: pod("a", report(row("app", 1, 5, hash("z")), row("side", 1, sideHash, noEnv)))},
		"the newest container is told of": {pod: pod("b", reported),
			containers: append([]runtime.Container{container("app", 2, "app:1")}, both...), unknown: true,
			want: want{Report: []inplace.RuntimeContainer{row("app", 2, appHash, 0), row("side", 1, sideHash, noEnv)},
				Read: []string{"containerd://app-2"}}},
		"of one that does not run no environment": {pod: pod("a"), containers: []runtime.Container{container("app", 1, "app:1", exited)},
			unknown: true,
			want:    want{Report: []inplace.RuntimeContainer{row("app", 1, appHash, 0)}}},
		"restartable init containers follow, ordinary ones do not": {pod: pod("a", func(p *corev1.Pod) {
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "once", ContainerID: "containerd://once-1"},
				{Name: "proxy", ContainerID: "containerd://proxy-1"}}
		}), containers: append([]runtime.Container{container("proxy", 1, "proxy:1"), container("once", 1, "once:1", exited)}, both...),
			want: want{Report: []inplace.RuntimeContainer{row("app", 1, appHash, hash("a")), row("side", 1, sideHash, noEnv),
				row("proxy", 1, number(inplace.PlainHash("proxy", "proxy:1")), noEnv)}}},
		"unreadable report": {pod: pod("a", func(p *corev1.Pod) { p.Annotations[pub.RuntimeContainersMeta] = "{" }), containers: both,
			want: want{Report: []inplace.RuntimeContainer{row("app", 1, appHash, hash("a")), row("side", 1, sideHash, noEnv)}}},
		"not ours":      {pod: pod("a", func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps/v1" }), containers: both},
		"being deleted": {pod: pod("a", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), containers: both},
		"nothing runs":  {pod: pod("a", func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }), containers: both},
		"none has an ID yet": {pod: pod("a", func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].ContainerID, p.Status.ContainerStatuses[1].ContainerID = "", ""
		}), containers: both},
		"gone from the runtime": {pod: pod("a")},

		"changed outside an update: no restart": {pod: pod("b", reported), containers: both},
		"changed in an update: restart": {pod: pod("b", reported, updatingPod), containers: both,
			want: want{Restarts: []string{"containerd://app-1"}}},
		"hash not known: no restart": {pod: pod("b", updatingPod,
			report(row("app", 1, appHash, 0), row("side", 1, sideHash, noEnv))), containers: both, unknown: true,
			want: want{Read: []string{"containerd://app-1"}}},
		"cannot be read, and the update does not name it: no restart": {pod: pod("b", updatingPod,
			report(row("app", 1, appHash, 0), row("side", 1, sideHash, noEnv))), containers: both, unknown: true, unreadable: true,
			want: want{Read: []string{"containerd://app-1"}}},
		"cannot be read, and the update names it: restart": {pod: pod("b",
			report(row("app", 1, appHash, 0), row("side", 1, sideHash, noEnv)),
			state(inplace.State{EnvContainers: map[string]string{"app": "containerd://app-1"}})),
			containers: both, unknown: true, unreadable: true,
			want: want{Read: []string{"containerd://app-1"}, Restarts: []string{"containerd://app-1"}}},
		"not read yet, and the update names it: it is read first": {pod: pod("b",
			report(row("app", 1, appHash, 0), row("side", 1, sideHash, noEnv)),
			state(inplace.State{EnvContainers: map[string]string{"app": "containerd://app-1"}})),
			containers: both, unknown: true, want: want{Read: []string{"containerd://app-1"}}},
		"cannot be read, and the update is over: no restart": {pod: pod("b",
			report(row("app", 1, appHash, 0), row("side", 1, sideHash, noEnv)),
			state(inplace.State{EnvContainers: map[string]string{"app": "containerd://app-1"}}), func(p *corev1.Pod) {
				p.Labels[pub.LifecycleState] = string(pub.LifecycleStateNormal)
			}), containers: both, unknown: true, unreadable: true, want: want{Read: []string{"containerd://app-1"}}},
		"by the record of the update, without the condition": {pod: pod("b", reported,
			state(inplace.State{EnvContainers: map[string]string{"app": "containerd://app-1"}})), containers: both,
			want: want{Restarts: []string{"containerd://app-1"}}},
		"the record speaks of the one before": {pod: pod("b", report(row("app", 2, appHash, hash("a")), row("side", 1, sideHash, noEnv)),
			state(inplace.State{EnvContainers: map[string]string{"app": "containerd://app-1"}})),
			containers: []runtime.Container{container("app", 2, "app:1"), both[1]}},
		"the image changes, too: left to kubelet": {pod: pod("b", reported, updatingPod,
			func(p *corev1.Pod) { p.Spec.Containers[1].Image = "app:2" }), containers: both, want: want{Left: 1}},
		"the image changes, kubelet's hash is missing": {pod: pod("b", reported, updatingPod,
			func(p *corev1.Pod) { p.Spec.Containers[1].Image = "app:2" }),
			containers: []runtime.Container{container("app", 1, "app:1", func(c *runtime.Container) { c.PlainHash = 0 }), both[1]},
			want:       want{Left: 1}},
		"it does not run: left alone": {pod: pod("b", reported, updatingPod),
			containers: []runtime.Container{container("app", 1, "app:1", exited), both[1]}},
		"restart asked for": {pod: pod("a", reported,
			state(inplace.State{RestartContainers: map[string]string{"app": "containerd://app-1", "side": "containerd://side-0"}})),
			containers: both, want: want{Restarts: []string{"containerd://app-1"}}},
		"ND-182 without the gate no restart": {pod: pod("b", reported, updatingPod,
			state(inplace.State{RestartContainers: map[string]string{"app": "containerd://app-1"}})), containers: both, gateOff: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := Snapshot{Pod: test.pod, Containers: test.containers, Environments: known, EnvFromMetadata: !test.gateOff}
			if test.unknown {
				s.Environments = nil
			}
			if test.unreadable {
				s.Unreadable = map[string]bool{"containerd://app-1": true}
			}
			plan := NewPlan(s)
			got := want{Read: plan.Read, Left: len(plan.Left)}
			if plan.Report != "" {
				var meta inplace.RuntimeMeta
				if err := json.Unmarshal([]byte(plan.Report), &meta); err != nil {
					t.Fatal(err)
				}
				got.Report = meta.Containers
			}
			for _, r := range plan.Restarts {
				got.Restarts = append(got.Restarts, r.Container.ID)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
		})
	}
}

// ND-081: the bytes of the annotation.
func TestTheReportHasTheseBytes(t *testing.T) {
	p := pod("a", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "x" })
	plan := NewPlan(Snapshot{Pod: p,
		Containers: []runtime.Container{{ID: "containerd://app-1", Name: "app", RestartCount: 2, PlainHash: 18446744073709551615}}})
	want := `{"containers":[{"name":"app","containerID":"containerd://app-1","restartCount":2,"hashes":{"plainHash":18446744073709551615}}]}`
	if plan.Report != want {
		t.Errorf("the report: got %s, want %s", plan.Report, want)
	}
}

// ND-104, ND-101, ND-103: known values of the hash, and which entries it contains.
func TestTheEnvironmentHashHasKnownValues(t *testing.T) {
	ref := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	a, b := ref("A", "metadata.labels['a']"), ref("B", "metadata.annotations['b']")
	for name, test := range map[string]struct {
		env    []corev1.EnvVar
		values map[string]string
		want   string
	}{
		"none":        {want: "86995377"},
		"one":         {env: []corev1.EnvVar{a}, values: map[string]string{"A": "1"}, want: "143497458"},
		"two, sorted": {env: []corev1.EnvVar{b, a}, values: map[string]string{"A": "1", "B": "x y"}, want: "3411789504"},
		"empty":       {env: []corev1.EnvVar{a}, want: "3524302846"},
		"sidecars apart (SS-252)": {env: []corev1.EnvVar{a, ref("SIDECARSET_VERSION", "metadata.labels['x']"),
			ref("SIDECARSET_VERSION_ALT", "metadata.labels['x']")}, values: map[string]string{"A": "1"}, want: "143497458"},
		"whole maps": {env: []corev1.EnvVar{ref("A", "metadata.labels")}, want: "86995377"},
		"overridden": {env: []corev1.EnvVar{a, {Name: "A", Value: "literal"}}, values: map[string]string{"A": "literal"},
			want: "86995377"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &corev1.Container{Env: test.env}
			if got := inplace.ActualEnvHash(c, test.values); got != test.want {
				t.Errorf("actual hash: got %s, want %s", got, test.want)
			}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": test.values["A"]},
				Annotations: map[string]string{"b": test.values["B"]}}}
			if got := inplace.EnvHash(p, c); got != test.want {
				t.Errorf("expected hash: got %s, want %s", got, test.want)
			}
		})
	}
}

// ND-102: the expected value is the pod's present label or annotation, the actual one is that of the
// container; missing values count as empty.
func TestMissingValuesAreEmpty(t *testing.T) {
	for of, path := range map[string]string{"label": "metadata.labels['a']", "annotation": "metadata.annotations['a']"} {
		c := &corev1.Container{
			Env: []corev1.EnvVar{{Name: "A", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"b": "1"}, Annotations: map[string]string{"b": "1"}}}
		const empty, one = "3524302846", "143497458" // ND-104
		if expected := inplace.EnvHash(p, c); expected != empty {
			t.Errorf("%s is missing: expected hash %s, want %s", of, expected, empty)
		}
		if actual := inplace.ActualEnvHash(c, map[string]string{"B": "1"}); actual != empty {
			t.Errorf("%s is missing: actual hash %s, want %s", of, actual, empty)
		}
		p.Labels["a"], p.Annotations["a"] = "", ""
		if expected := inplace.EnvHash(p, c); expected != empty {
			t.Errorf("%s is empty: expected hash %s, want %s", of, expected, empty)
		}
		if actual := inplace.ActualEnvHash(c, map[string]string{"A": ""}); actual != empty {
			t.Errorf("%s is empty: actual hash %s, want %s", of, actual, empty)
		}
		if of == "label" {
			p.Labels["a"] = "1"
		} else {
			p.Annotations["a"] = "1"
		}
		if expected := inplace.EnvHash(p, c); expected != one {
			t.Errorf("%s is set: expected hash %s, want %s", of, expected, one)
		}
		if actual := inplace.ActualEnvHash(c, map[string]string{"A": "1"}); actual != one {
			t.Errorf("%s is set: actual hash %s, want %s", of, actual, one)
		}
	}
}

// ND-088, ND-089, ND-090, ND-091, ND-200: which events cause a pass; containers are compared by name, in any
// order. TestEventsAreCoalesced shows when.
func TestTriggers(t *testing.T) {
	appHash, sideHash := number(inplace.PlainHash("app", "app:1")), number(inplace.PlainHash("side", "side:1"))
	reported := report(row("side", 1, sideHash, noEnv), row("app", 1, appHash, hash("a")))
	restarted := func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://app-2" }
	asked := state(inplace.State{RestartContainers: map[string]string{"app": "containerd://app-1"}})
	turned := func(p *corev1.Pod) { slices.Reverse(p.Status.ContainerStatuses) }
	debugged := func(p *corev1.Pod) { // more statuses than the spec has containers
		p.Status.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "debug", ContainerID: "containerd://debug-1"}, {Name: "more"}},
			p.Status.ContainerStatuses...)
	}
	// IPU-129: which pods are reported, at which changes, and which are not at the start;
	// TestReportIsOnePatch shows how.
	for name, test := range map[string]struct {
		before, now *corev1.Pod
		initial     bool
		gateOff     bool
		want        bool
	}{
		"at start without a report":                      {now: pod("a"), initial: true},
		"at start with a report that fits":               {now: pod("a", reported), initial: true},
		"at start with a report of another container":    {now: pod("a", reported, restarted), initial: true, want: true},
		"at start with another environment":              {now: pod("b", reported), initial: true, want: true},
		"the same without the gate":                      {now: pod("b", reported), initial: true, gateOff: true},
		"at start without a report, a restart asked for": {now: pod("a", asked), initial: true, want: true},
		"at start without a report, an environment to be changed": {now: pod("a",
			state(inplace.State{EnvContainers: map[string]string{"app": "containerd://app-1"}})), initial: true, want: true},
		"at start without a report, the one to restart has been": {now: pod("a", asked, restarted), initial: true},
		"at start without a report, the one to restart has ended": {now: pod("a", asked, func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
		}), initial: true},
		"reported, in another order":              {before: pod("a", reported), now: pod("a", reported, turned)},
		"unreported, in another order":            {before: pod("a"), now: pod("a", turned)},
		"reported, more statuses than containers": {before: pod("a", reported, debugged), now: pod("a", reported, debugged)},
		"reported, more statuses, restarted": {before: pod("a", reported, debugged), now: pod("a", reported, restarted, debugged),
			want: true},
		"the environment changed, without the gate": {before: pod("b", reported), now: pod("a", reported), gateOff: true},
		"new":                                            {now: pod("a"), want: true},
		"new and not started":                            {now: pod("a", func(p *corev1.Pod) { p.Status.ContainerStatuses = nil })},
		"unreported, nothing changed":                    {before: pod("a"), now: pod("a")},
		"unreported, restarted":                          {before: pod("a"), now: pod("a", restarted), want: true},
		"unreported, environment changed":                {before: pod("a"), now: pod("b"), want: true},
		"reported, nothing changed":                      {before: pod("a", reported), now: pod("a", reported)},
		"reported, restarted":                            {before: pod("a", reported), now: pod("a", reported, restarted), want: true},
		"reported, environment back to what is reported": {before: pod("b", reported), now: pod("a", reported), want: true},
		"reported, more containers": {before: pod("a", reported,
			func(p *corev1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }), now: pod("a", reported), want: true},
		"deleted": {before: pod("a", reported),
			now: pod("b", reported, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })},
		"a foreign pod": {now: pod("a", func(p *corev1.Pod) { p.OwnerReferences = nil })},
		"a foreign pod with a sidecar": {now: pod("a",
			func(p *corev1.Pod) { p.OwnerReferences = nil; p.Annotations[pub.SidecarSetHash] = "{}" }), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := triggers(test.before, test.now, test.initial, !test.gateOff); got != test.want {
				t.Errorf("the event causes a pass: got %t, want %t", got, test.want)
			}
		})
	}
}

// delays is a queue that records what is added, and with which delay.
type delays struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	after map[string]time.Duration
}

func (d *delays) AddAfter(item reconcile.Request, after time.Duration) { d.after[item.Name] = after }

// ND-088, ND-090: an event waits for others of its pod for a second; pods that existed at the start do not
// count as new.
func TestEventsAreCoalesced(t *testing.T) {
	h := (&reconciler{own: &own.OwnWrites{}, readings: newReadings(), Options: Options{EnvFromMetadata: true}}).handler()
	q := &delays{after: map[string]time.Duration{}}
	named := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Name = name } }
	h.Create(t.Context(), event.CreateEvent{Object: pod("a", named("new"))}, q)
	h.Create(t.Context(), event.CreateEvent{Object: pod("a", named("old")), IsInInitialList: true}, q)
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("a", named("changed")), ObjectNew: pod("b", named("changed"))}, q)
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("a", named("same")), ObjectNew: pod("a", named("same"))}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: pod("a", named("deleted"))}, q)
	if diff := cmp.Diff(map[string]time.Duration{"new": time.Second, "changed": time.Second}, q.after); diff != "" {
		t.Errorf("pods whose events cause a pass, and after how long (-want +got):\n%s", diff)
	}
}

// ND-082: pods whose controller is of our API group, in any version, and pods with an injected sidecar; no
// others.
func TestEligible(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"v1beta1":               {func(*corev1.Pod) {}, true},
		"v1alpha1":              {func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps.kruise.io/v1alpha1" }, true},
		"a version of tomorrow": {func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps.kruise.io/v9" }, true},
		"another group":         {func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps/v1" }, false},
		"a group like ours":     {func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps.kruise.io.example/v1" }, false},
		"an unreadable group":   {func(p *corev1.Pod) { p.OwnerReferences[0].APIVersion = "apps.kruise.io/v1/v2" }, false},
		"not the controller":    {func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }, false},
		"no owner":              {func(p *corev1.Pod) { p.OwnerReferences = nil }, false},
		"with a sidecar":        {func(p *corev1.Pod) { p.OwnerReferences, p.Annotations[pub.SidecarSetHash] = nil, "{}" }, true},
	} {
		if got := Eligible(pod("a", test.change)); got != test.want {
			t.Errorf("%s: the pod is reported: got %t, want %t", name, got, test.want)
		}
	}
}
