package sidecarterminator

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
	given "github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator/sidecarterminatortest"
)

const stop, ignoring, image = pub.TerminateSidecarEnv, pub.TerminateSidecarIgnoreExitEnv, pub.TerminateSidecarImageEnv

// act is a plan in one line: images, request with its containers, phase; empty if there is nothing to do.
func act(t *testing.T, p *Plan, pod *corev1.Pod) string {
	t.Helper()
	var acts []string
	if !p.Images.Empty() {
		acts = append(acts, p.Images.String())
	}
	if p.Request != nil {
		var names []string
		for _, c := range p.Request.Spec.Containers {
			names = append(names, c.Name)
		}
		acts = append(acts, strings.TrimPrefix(p.Request.Name, prefix)+": "+strings.Join(names, " "))
	}
	if !p.Status.Empty() {
		body, err := p.Status.JSON(pod)
		if err != nil {
			t.Fatal(err)
		}
		var patched corev1.Pod
		if err := json.Unmarshal(body, &patched); err != nil {
			t.Fatal(err)
		}
		c := patched.Status.Conditions[0]
		if len(patched.Status.Conditions) != 1 {
			t.Errorf("len(patched.Status.Conditions): got %d, want 1\n%s", len(patched.Status.Conditions), body)
		}
		if c.Type != "SidecarTerminated" {
			t.Errorf("type: got %q, want %q\n%s", c.Type, "SidecarTerminated", body)
		}
		if c.Status != corev1.ConditionTrue {
			t.Errorf("status: got %q, want %q\n%s", c.Status, corev1.ConditionTrue, body)
		}
		if c.Message == "" {
			t.Errorf("message: got nothing, want some text\n%s", body)
		}
		if !c.LastTransitionTime.Time.Equal(given.Noon) {
			t.Errorf("time: got %v, want %v\n%s", c.LastTransitionTime.Time, given.Noon, body)
		}
		if patched.UID != "u" {
			t.Errorf("uid: got %q, want %q\n%s", patched.UID, "u", body)
		}
		acts = append(acts, "phase "+string(patched.Status.Phase))
	}
	return strings.Join(acts, "; ")
}

func plan(pod *corev1.Pod, node Node, requests ...*appsv1beta1.ContainerRecreateRequest) *Plan {
	return NewPlan(Snapshot{Pod: pod, Node: node, Requests: requests, Now: given.Noon})
}

// JST-001, JST-003, JST-011, JST-022, JST-023, JST-024, JST-031, JST-044: when something is done, and what is
// waited for otherwise.
func TestWhenItActs(t *testing.T) {
	onFailure := given.Policy(corev1.RestartPolicyOnFailure)
	rule := func(codes ...int32) given.Option {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart,
				ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: codes}}}
		}
	}
	own := func(policy corev1.ContainerRestartPolicy) given.Option {
		return func(p *corev1.Pod) { p.Spec.Containers[0].RestartPolicy = &policy }
	}
	main, side := given.With("main", given.Ended(0)), given.Sidecar("s", given.Running(0))
	for name, test := range map[string]struct {
		pod       *corev1.Pod
		want, why string
	}{
		"Never, done":                    {given.Pod(main, side), "u: s", "sidecar s: stopped by"},
		"Never, failed":                  {given.Pod(given.With("main", given.Ended(3)), side), "u: s", ""},
		"Never, it runs":                 {given.Pod(given.With("main", given.Running(0)), side), "", "main container main has not ended"},
		"Never, it waits":                {given.Pod(given.With("main", given.Waiting), side), "", "main container main has not ended"},
		"Never, one of two runs":         {given.Pod(main, given.With("other", given.Running(0)), side), "", "main container other has not ended"},
		"Never, two":                     {given.Pod(main, given.With("other", given.Ended(1)), side), "u: s", ""},
		"OnFailure, done":                {given.Pod(onFailure, main, side), "u: s", ""},
		"OnFailure, failed":              {given.Pod(onFailure, given.With("main", given.Ended(1)), side), "", "main container main is started again by kubelet"},
		"Always":                         {given.Pod(given.Policy(corev1.RestartPolicyAlways), main, side), "", "the pod does not run to completion"},
		"being deleted":                  {given.Pod(main, side, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), "", "the pod is being deleted"},
		"Pending":                        {given.Pod(main, side, given.Phase(corev1.PodPending, time.Time{})), "", "the pod has not started"},
		"unknown phase":                  {given.Pod(main, side, given.Phase(corev1.PodUnknown, time.Time{})), "u: s", ""},
		"finished by somebody else":      {given.Pod(main, side, given.Phase(corev1.PodFailed, time.Time{})), "", "the pod has ended"},
		"no sidecar":                     {given.Pod(main, given.With("x", given.Running(0))), "", "no container is marked"},
		"no main container":              {given.Pod(side, given.Sidecar("r", given.Ended(0))), "", "the pod has no main container"},
		"all sidecars have ended":        {given.Pod(main, given.Sidecar("s", given.Ended(1)), given.Ignored("i", given.Ended(1))), "", "all sidecars have ended"},
		"one sidecar has ended":          {given.Pod(main, side, given.Sidecar("r", given.Ended(0))), "u: s", ""},
		"a sidecar waits":                {given.Pod(main, given.Sidecar("s", given.Waiting)), "", "sidecar s does not run yet"},
		"one waits, one runs":            {given.Pod(main, given.Sidecar("r", given.Waiting), side), "u: s", "sidecar r does not run yet"},
		"a sidecar comes back":           {given.Pod(onFailure, main, given.Sidecar("s", given.Ended(1)), given.Ignored("i", given.Running(0))), "", "sidecar s is started again by kubelet"},
		"a status is missing":            {given.Pod(main, side, func(p *corev1.Pod) { p.Status.ContainerStatuses = p.Status.ContainerStatuses[:1] }), "", "kubelet has reported of 1 of 2"},
		"statuses of others":             {given.Pod(main, side, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Name = "x" }), "", "main container main has not ended"},
		"a rule starts it again":         {given.Pod(given.With("main", given.Ended(42)), side, rule(42)), "", "main container main is started again by kubelet"},
		"a rule for another code":        {given.Pod(given.With("main", given.Ended(1)), side, rule(42)), "u: s", ""},
		"its own policy starts it again": {given.Pod(main, side, own(corev1.ContainerRestartPolicyAlways)), "", "main container main is started again by kubelet"},
		"its own policy leaves it ended": {given.Pod(onFailure, given.With("main", given.Ended(1)), side, own(corev1.ContainerRestartPolicyNever)), "u: s", ""},
		"an init container is no main":   {given.Pod(main, side, func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "init"}} }), "u: s", ""},
		"native sidecars are kubelet's": {given.Pod(main, side, func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "native", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Env: []corev1.EnvVar{{Name: stop, Value: "true"}}}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "native", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}), "u: s", ""},
		"an init container is no sidecar": {given.Pod(main, given.With("x", given.Running(0)), func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Env: []corev1.EnvVar{{Name: stop, Value: "true"}}}}
		}), "", "no container is marked"},
		"the main ones of a pod with the third": {given.Pod(given.With("main", given.Running(0)), given.ByImage("s", given.Running(0))), "", "main container main has not ended"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(test.pod, Normal)
			if got := act(t, p, test.pod); got != test.want || !strings.Contains(p.String(), test.why) || p.Idle() != (test.want == "") || p.Why == "" {
				t.Errorf("%q, want %q: %s", got, test.want, p)
			}
			if Concerns(test.pod) != (p.Why != "" && interested(test.pod)) {
				t.Errorf("concerns: %v", Concerns(test.pod))
			}
		})
	}
}

func interested(pod *corev1.Pod) bool { _, why := interest(pod); return why == "" }

// JST-010, JST-012, JST-013, JST-014, JST-071: what variables say, on both sorts of nodes; a phase is set
// ahead only for those who ask for it.
func TestVariablesDecideHowASidecarEnds(t *testing.T) {
	for name, test := range map[string]struct {
		env             []string
		normal, virtual string
	}{
		"none":                      {nil, "", ""},
		"first":                     {[]string{stop, "true"}, "u: s", ""},
		"first, in capitals":        {[]string{stop, "TRUE"}, "u: s", ""},
		"first, mixed":              {[]string{stop, "True"}, "u: s", ""},
		"false":                     {[]string{stop, "false"}, "", ""},
		"another value":             {[]string{stop, "yes"}, "", ""},
		"empty":                     {[]string{stop, ""}, "", ""},
		"second alone":              {[]string{ignoring, "true"}, "", ""},
		"first and second":          {[]string{stop, "true", ignoring, "tRue"}, "phase Succeeded", ""},
		"second false":              {[]string{stop, "true", ignoring, "false"}, "u: s", ""},
		"third alone":               {[]string{image, "exit:1"}, "u: s", "image of s=exit:1"},
		"third empty":               {[]string{image, ""}, "", ""},
		"third and second":          {[]string{image, "exit:1", ignoring, "true"}, "u: s", "image of s=exit:1"},
		"first and third":           {[]string{stop, "true", image, "exit:1"}, "u: s", "image of s=exit:1"},
		"all":                       {[]string{stop, "true", ignoring, "true", image, "exit:1"}, "phase Succeeded", "image of s=exit:1"},
		"first false, third":        {[]string{stop, "false", image, "exit:1"}, "u: s", "image of s=exit:1"},
		"the last of a name counts": {[]string{stop, "true", stop, "false"}, "", ""},
		"the image is there":        {[]string{image, "s:1"}, "u: s", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod := given.Pod(given.With("main", given.Ended(0)), given.With("s", given.Running(0), test.env...))
			if got := act(t, plan(pod, Normal), pod); got != test.normal {
				t.Errorf("on a normal node %q, want %q", got, test.normal)
			}
			if got := act(t, plan(pod, Virtual), pod); got != test.virtual {
				t.Errorf("on a virtual node %q, want %q", got, test.virtual)
			}
			for i := range pod.Spec.Containers[1].Env { // references do not count
				pod.Spec.Containers[1].Env[i].ValueFrom = &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}
			}
			got := act(t, plan(pod, Normal), pod) + act(t, plan(pod, Virtual), pod)
			if got != "" {
				t.Errorf("got %q, want %q", got, "")
			}
			if Marked(pod) {
				t.Error("Marked(pod): got true, want false")
			}
		})
	}
}

// JST-002: who owns the pod does not matter, be it a Job, a BroadcastJob or nobody.
func TestOwnersDoNotMatter(t *testing.T) {
	yes := true
	for _, owner := range []metav1.OwnerReference{{}, {APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: &yes},
		{APIVersion: "apps.kruise.io/v1beta1", Kind: "BroadcastJob", Name: "b", UID: "b", Controller: &yes},
		{APIVersion: "example.com/v1", Kind: "Any", Name: "a", UID: "a", Controller: &yes}} {
		pod := given.Pod(given.With("main", given.Ended(0)), given.Sidecar("s", given.Running(0)))
		if owner.Kind != "" {
			pod.OwnerReferences = []metav1.OwnerReference{owner}
		}
		p := plan(pod, Normal)
		if got := act(t, p, pod); got != "u: s" || OwnerOf(p.Request) != "p" {
			t.Errorf("%s: %s", owner.Kind, got)
		}
	}
}

// JST-030, JST-040, JST-052: sidecars whose code counts first, then the phase, which is that of the main
// containers; names are sorted.
func TestOrderOfSteps(t *testing.T) {
	main := given.With("main", given.Ended(0))
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"both sorts":                        {given.Pod(main, given.Ignored("i", given.Running(0)), given.Sidecar("s", given.Running(0))), "u: s"},
		"sorted":                            {given.Pod(main, given.Sidecar("z", given.Running(0)), given.Sidecar("a", given.Running(0)), given.Sidecar("m", given.Running(0))), "u: a m z"},
		"the first sort has ended":          {given.Pod(main, given.Ignored("i", given.Running(0)), given.Sidecar("s", given.Ended(143))), "phase Succeeded"},
		"the first sort waits":              {given.Pod(main, given.Ignored("i", given.Running(0)), given.Sidecar("s", given.Waiting)), ""},
		"the image sort runs":               {given.Pod(main, given.Ignored("i", given.Running(0)), given.ByImage("s", given.Running(0))), "u: s"},
		"the image sort has ended":          {given.Pod(main, given.Ignored("i", given.Running(0)), given.ByImage("s", given.Ended(0))), "phase Succeeded"},
		"failed":                            {given.Pod(given.With("main", given.Ended(1)), given.Ignored("i", given.Running(0))), "phase Failed"},
		"one of two failed":                 {given.Pod(main, given.With("other", given.Ended(1)), given.Ignored("i", given.Running(0))), "phase Failed"},
		"ignored ones that failed":          {given.Pod(main, given.Ignored("h", given.Ended(9)), given.Ignored("i", given.Running(0))), "phase Succeeded"},
		"the phase is set, kubelet's turn":  {given.Pod(main, given.Ignored("i", given.Running(0)), given.Phase(corev1.PodSucceeded, given.Noon.Add(-59*time.Second))), ""},
		"the phase is set, kubelet is late": {given.Pod(main, given.Ignored("i", given.Running(0)), given.Phase(corev1.PodSucceeded, given.Noon.Add(-time.Minute))), "u-ignore: i"},
		"the phase is set, all ended":       {given.Pod(main, given.Ignored("i", given.Ended(137)), given.Phase(corev1.PodSucceeded, given.Noon.Add(-time.Hour))), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(test.pod, Normal)
			if got := act(t, p, test.pod); got != test.want {
				t.Errorf("%q, want %q: %s", got, test.want, p)
			}
		})
	}
	pod := given.Pod(main, given.Ignored("i", given.Running(0)), given.Phase(corev1.PodSucceeded, given.Noon.Add(-50*time.Second)))
	p := plan(pod, Normal)
	if p.After != 10*time.Second {
		t.Errorf("after: got %v, want %v\n%v", p.After, 10*time.Second, p)
	}
	if !strings.Contains(p.Why, "kubelet stops") {
		t.Errorf("why: got %q, want it to contain %q\n%v", p.Why, "kubelet stops", p)
	}
}

// JST-041 (part): the write that sets the phase changes an annotation too, each time to another value, because
// kubelet acts on a change of the status alone only much later.
func TestThePhaseIsSetWithAnAnnotation(t *testing.T) {
	pod, values := given.Pod(given.With("main", given.Ended(0)), given.Ignored("i", given.Running(0))), map[string]bool{}
	for after := range 2 {
		p := NewPlan(Snapshot{Pod: pod, Node: Normal, Now: given.Noon.Add(time.Duration(after) * time.Millisecond)})
		body, err := p.Status.JSON(pod)
		if err != nil {
			t.Fatal(err)
		}
		var written corev1.Pod
		if err := json.Unmarshal(body, &written); err != nil {
			t.Fatal(err)
		}
		if written.Status.Phase != corev1.PodSucceeded {
			t.Errorf("phase: got %s, want Succeeded", written.Status.Phase)
		}
		values[written.Annotations[pub.SidecarTerminatedAt]] = true
	}
	if len(values) != 2 || values[""] {
		t.Errorf("values of annotation %s: got %v, want two", pub.SidecarTerminatedAt, values)
	}
}

// JST-016, JST-043: without the second variable no phase is set, whatever the codes: kubelet decides, and a
// code that is not 0 makes the pod Failed under Never.
func TestCodesThatCount(t *testing.T) {
	for _, code := range []int32{0, 143, 137} {
		for _, other := range []given.State{given.Running(0), given.Waiting, given.Ended(code)} {
			pod := given.Pod(given.With("main", given.Ended(0)), given.Sidecar("s", given.Ended(code)), given.Sidecar("t", other))
			if p := plan(pod, Normal); !p.Status.Empty() {
				t.Errorf("%d: p.Status.Empty(): got false, want true\n%s", code, p)
			}
		}
	}
}

// JST-025, JST-061 (part): the label decides; a node that is not found is looked for again, ever less often,
// and nothing is done before.
func TestTheLabelOfTheNodeDecides(t *testing.T) {
	for want, labels := range map[Node][]map[string]string{Virtual: {{"type": "virtual-kubelet"}}, Normal: {nil, {"type": "x"}, {"kind": "virtual-kubelet"}}} {
		for _, l := range labels {
			if got := NodeOf(l); got != want {
				t.Errorf("%v: NodeOf(l): got %q, want %q", l, got, want)
			}
		}
	}
	pod := given.Pod(given.With("main", given.Ended(0)), given.ByImage("s", given.Running(0)))
	for since, again := range map[time.Duration]time.Duration{-time.Hour: 10 * time.Second, 0: 10 * time.Second, time.Minute: time.Minute, time.Hour: 5 * time.Minute} {
		p := NewPlan(Snapshot{Pod: pod, Now: given.Noon.Add(since)})
		if !p.Idle() {
			t.Errorf("%s: p.Idle(): got false, want true\n%s", since, p)
		}
		if p.After != again {
			t.Errorf("%s: p.After: got %v, want %v\n%s", since, p.After, again, p)
		}
		if !strings.Contains(p.Why, "node n is not found") {
			t.Errorf("%s: p.Why: got %q, want it to contain %q\n%s", since, p.Why, "node n is not found", p)
		}
	}
}

// JST-013, JST-031, JST-036 (part): on virtual nodes the images of those that have not ended are replaced,
// equal ones are left; what cannot be stopped is told.
func TestOnVirtualNodesImagesAreReplaced(t *testing.T) {
	pod := given.Pod(given.With("main", given.Ended(0)), given.Sidecar("a", given.Running(0)), given.ByImage("b", given.Running(0)), given.ByImage("c", given.Ended(0)), given.ByImage("d", given.Running(0)),
		given.ByImage("e", given.Waiting), func(p *corev1.Pod) { p.Spec.Containers[4].Image = "exit:1" })
	p := plan(pod, Virtual)
	got := act(t, p, pod)
	if got != "image of b=exit:1, image of e=exit:1" {
		t.Errorf("act(t, p, pod): got %q, want %q", got, "image of b=exit:1, image of e=exit:1")
	}
	if !slices.Equal(p.Replaced, []string{"b", "e"}) {
		t.Errorf("replaced: got %q, want %q", p.Replaced, []string{"b", "e"})
	}
	if len(p.Warnings) != 1 {
		t.Errorf("%+v: len(p.Warnings): got %d, want 1\n%s", p.Warnings, len(p.Warnings), p)
	} else if p.Warnings[0].Reason != NoWay {
		t.Errorf("%+v: p.Warnings[0].Reason: got %q, want %q\n%s", p.Warnings, p.Warnings[0].Reason, NoWay, p)
	} else if !strings.Contains(p.Warnings[0].Message, "sidecar a cannot be stopped") {
		t.Errorf("%+v: p.Warnings[0].Message: got %q, want it to contain %q\n%s", p.Warnings, p.Warnings[0].Message,
			"sidecar a cannot be stopped", p)
	} else if !strings.Contains(p.Why, "sidecar d has got image exit:1") {
		t.Errorf("%+v: p.Why: got %q, want it to contain %q\n%s", p.Warnings, p.Why, "sidecar d has got image exit:1", p)
	}
	body, err := p.Images.JSON(pod)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"spec":{"containers":[{"image":"exit:1","name":"b"},{"image":"exit:1","name":"e"}]}`; !strings.Contains(string(body), want) {
		t.Errorf("body: got %q, want it to contain %q", string(body), want)
	}
}

// JST-032, JST-034 (part), JST-038 (part): what a request says. It leaves the grace period to that of the
// pod, and hooks to the daemon.
func TestRequest(t *testing.T) {
	pod := given.Pod(given.With("main", given.Ended(0)), given.Sidecar("b", given.Running(0)), given.Sidecar("a", given.Running(0)))
	got := plan(pod, Normal).Request
	yes := true
	want := &appsv1beta1.ContainerRecreateRequest{TypeMeta: metav1.TypeMeta{APIVersion: "apps.kruise.io/v1beta1", Kind: "ContainerRecreateRequest"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sidecar-termination-u",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u", Controller: &yes}}},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "p", ActiveDeadlineSeconds: new(int64(360)), TTLSecondsAfterFinished: new(int32(900)),
			Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "a"}, {Name: "b"}},
			Strategy:   &appsv1beta1.ContainerRecreateRequestStrategy{ForceRecreate: true, FailurePolicy: "Ignore"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for grace, want := range map[int64]int64{0: 300, -1: 300, 3600: 300 + 2*3600, 1 << 62: 300 + 2*24*3600} {
		pod.Spec.TerminationGracePeriodSeconds = &grace
		if got := *plan(pod, Normal).Request.Spec.ActiveDeadlineSeconds; got != want {
			t.Errorf("%d: *plan(pod, Normal).Request.Spec.ActiveDeadlineSeconds: got %d, want %d", grace, got, want)
		}
	}
	pod.Spec.TerminationGracePeriodSeconds = nil
	if got := *plan(pod, Normal).Request.Spec.ActiveDeadlineSeconds; got != 360 {
		t.Errorf("*plan(pod, Normal).Request.Spec.ActiveDeadlineSeconds: got %d, want 360", got)
	}
}

// named returns requests of pod u with these endings of names, of which the last is the newest.
func named(endings ...string) (all []*appsv1beta1.ContainerRecreateRequest) {
	for i, ending := range endings {
		r := given.Completed(given.Request(prefix+"u"+ending, "s", "i"), "")
		r.CreationTimestamp = metav1.NewTime(given.Noon.Add(time.Duration(i) * time.Second))
		all = append(all, r)
	}
	return all
}

// JST-032, JST-033, JST-034: one request at a time; another one when it has ended and the sidecar still runs,
// after a pause that grows.
func TestRequestsOneAfterTheOther(t *testing.T) {
	counts, ignored := given.Pod(given.With("main", given.Ended(0)), given.Sidecar("s", given.Running(0))),
		given.Pod(given.With("main", given.Ended(0)), given.Sidecar("s", given.Ended(0)), given.Ignored("i", given.Running(0)), given.Phase(corev1.PodSucceeded, given.Noon.Add(-time.Hour)))
	at := func(ago time.Duration, all []*appsv1beta1.ContainerRecreateRequest) map[types.UID]time.Time {
		ended := map[types.UID]time.Time{}
		for _, r := range all {
			ended[r.UID] = given.Noon.Add(-ago)
		}
		return ended
	}
	under := given.Request(prefix+"u", "s")
	for name, test := range map[string]struct {
		pod      *corev1.Pod
		requests []*appsv1beta1.ContainerRecreateRequest
		ago      time.Duration
		want     string
		after    time.Duration
	}{
		"under way":                       {counts, []*appsv1beta1.ContainerRecreateRequest{under}, 0, "", 0},
		"ended just now":                  {counts, named(""), 0, "", 10 * time.Second},
		"ended, not yet":                  {counts, named(""), 9 * time.Second, "", time.Second},
		"ended before, by a clock ahead":  {counts, named(""), -time.Hour, "", 10 * time.Second},
		"ended, the second":               {counts, named(""), 10 * time.Second, "u-2: s", 0},
		"the third":                       {counts, named("", "-2"), 19 * time.Second, "", time.Second},
		"the third, now":                  {counts, named("", "-2"), 20 * time.Second, "u-3: s", 0},
		"the second is the last kept":     {counts, named("-6"), 299 * time.Second, "", time.Second},
		"and the next":                    {counts, named("-6"), 300 * time.Second, "u-7: s", 0},
		"the longest pause":               {counts, named("-42"), 300 * time.Second, "u-43: s", 0},
		"after the last number":           {counts, named("-98", "-99"), 300 * time.Second, "u-10: s", 0},
		"after that":                      {counts, named("-99", "-10"), 300 * time.Second, "u-11: s", 0},
		"a group of its own":              {ignored, named(""), 0, "u-ignore: i", 0},
		"the second of that group":        {ignored, named("", "-2", "-ignore"), 10 * time.Second, "u-ignore-2: i", 0},
		"the second of that group, later": {ignored, named("", "-ignore"), 9 * time.Second, "", time.Second},
		"one of another group":            {counts, named("-ignore"), 0, "u: s", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := NewPlan(Snapshot{Pod: test.pod, Node: Normal, Requests: test.requests, Ended: at(test.ago, test.requests), Now: given.Noon})
			got := act(t, p, test.pod)
			if got != test.want {
				t.Errorf("act(t, p, test.pod): got %q, want %q; %q, want %q: %s", got, test.want, got, test.want, p)
			}
			if p.After != test.after {
				t.Errorf("after: got %v, want %v; %q, want %q: %s", p.After, test.after, got, test.want, p)
			}
		})
	}
	both := given.Pod(given.With("main", given.Ended(0)), given.Sidecar("s", given.Running(0)), given.Sidecar("late", given.Running(0)))
	if got := act(t, plan(both, Normal, named("")...), both); got != "u-2: late s" { // one that no request was for does not wait
		t.Error(got)
	}
	going := given.Request(prefix+"u", "s")
	going.DeletionTimestamp = &metav1.Time{Time: given.Noon}
	if p := plan(counts, Normal, going); p.Request != nil {
		t.Errorf("request: got %+v, want nil\n%v", p.Request, p)
	} else if p.After != 10*time.Second {
		t.Errorf("after: got %v, want %v\n%v", p.After, 10*time.Second, p)
	}
	if p := plan(counts, Normal, under); !strings.Contains(p.Why, "sidecar-termination-u is under way") {
		t.Errorf("why: got %q, want it to contain %q\n%v", p.Why, "sidecar-termination-u is under way", p)
	}
	for number, want := range map[int]time.Duration{0: 10, 1: 10, 2: 20, 3: 40, 4: 80, 5: 160, 6: 300, 99: 300} {
		got := pause(number)
		if got != want*time.Second {
			t.Errorf("%d: pause(number): got %v, want %v", number, got, want*time.Second)
		}
		if got >= keep*time.Second {
			t.Errorf("%d: pause(number): got %v, want less than %v", number, got, keep*time.Second)
		}
	}
}

// No two requests are under way, whatever the clocks of API servers say about which of them is the newer one
// (JST-034 (part)).
func TestOneRequestWhateverClocksSay(t *testing.T) {
	pod := given.Pod(given.With("main", given.Ended(0)), given.Sidecar("late", given.Running(0)), given.Sidecar("s", given.Running(0)))
	first, second := given.Completed(given.Request(prefix+"u", "s"), ""), given.Request(prefix+"u-2", "late", "s")
	second.CreationTimestamp = metav1.NewTime(given.Noon.Add(-time.Second))
	p := plan(pod, Normal, first, second)
	if !p.Idle() {
		t.Errorf("p.Idle(): got false, want true\n%v", p)
	}
	if !strings.Contains(p.Why, "sidecar-termination-u-2 is under way") {
		t.Errorf("why: got %q, want it to contain %q\n%v", p.Why, "sidecar-termination-u-2 is under way", p)
	}
}

// Sidecars that come back by turns are not stopped without pauses, although the last request was for the
// other one (JST-034 (part), JST-039 (part)).
func TestSidecarsThatComeBackByTurns(t *testing.T) {
	pod := given.Pod(given.Policy(corev1.RestartPolicyOnFailure), given.With("main", given.Ended(0)), given.Sidecar("a", given.Waiting), given.Sidecar("b", given.Running(1)))
	first, second := given.Completed(given.Request(prefix+"u", "a", "b"), ""), given.Completed(given.Request(prefix+"u-2", "a"), "")
	p := plan(pod, Normal, first, second)
	if !p.Idle() {
		t.Errorf("p.Idle(): got false, want true\n%s\n%+v", p, p.Warnings)
	} else if p.After != 20*time.Second {
		t.Errorf("after: got %v, want %v\n%s\n%+v", p.After, 20*time.Second, p, p.Warnings)
	} else if len(p.Warnings) != 1 {
		t.Errorf("len(p.Warnings): got %d, want 1\n%s\n%+v", len(p.Warnings), p, p.Warnings)
	} else if p.Warnings[0].About != second.Name {
		t.Errorf("p.Warnings[0].About: got %q, want %q\n%s\n%+v", p.Warnings[0].About, second.Name, p, p.Warnings)
	}
}

// JST-039, JST-070: under OnFailure a sidecar that kubelet starts again is stopped again, and the user is
// told what to do.
func TestSidecarThatComesBack(t *testing.T) {
	pod := func(restarts int32) *corev1.Pod {
		return given.Pod(given.Policy(corev1.RestartPolicyOnFailure), given.With("main", given.Ended(0)), given.Sidecar("s", given.Running(restarts)))
	}
	first := given.Completed(given.Request(prefix+"u", "s"), "")
	later := NewPlan(Snapshot{Pod: pod(1), Node: Normal, Requests: []*appsv1beta1.ContainerRecreateRequest{first},
		Ended: map[types.UID]time.Time{first.UID: given.Noon.Add(-time.Minute)}, Now: given.Noon})
	for name, p := range map[string]*Plan{"at once": plan(pod(1), Normal, first), "later": later} {
		if len(p.Warnings) != 1 {
			t.Errorf("%s: len(p.Warnings): got %d, want 1\n%+v", name, len(p.Warnings), p.Warnings)
		} else if p.Warnings[0].Reason != StartsAgain {
			t.Errorf("%s: p.Warnings[0].Reason: got %q, want %q\n%+v", name, p.Warnings[0].Reason, StartsAgain, p.Warnings)
		} else if !strings.Contains(p.Warnings[0].Message, "exit with 0") {
			t.Errorf("%s: p.Warnings[0].Message: got %q, want it to contain %q\n%+v", name, p.Warnings[0].Message, "exit with 0", p.Warnings)
		} else if !strings.Contains(p.Warnings[0].Message, ignoring) {
			t.Errorf("%s: p.Warnings[0].Message: got %q, want it to contain %q\n%+v", name, p.Warnings[0].Message, ignoring, p.Warnings)
		} else if p.Warnings[0].About != first.Name {
			t.Errorf("%s: p.Warnings[0].About: got %q, want %q\n%+v", name, p.Warnings[0].About, first.Name, p.Warnings)
		}
	}
	if got := act(t, later, pod(1)); got != "u-2: s" {
		t.Errorf("act(t, later, pod(1)): got %q, want %q", got, "u-2: s")
	}
	if p := plan(pod(0), Normal, first); len(p.Warnings) > 0 { // the status is late
		t.Errorf("%+v", p.Warnings)
	}
	for _, state := range []given.State{given.Waiting, given.Ended(143)} { // kubelet's own pause
		between := given.Pod(given.Policy(corev1.RestartPolicyOnFailure), given.With("main", given.Ended(0)), given.Sidecar("s", state))
		p := plan(between, Normal, first)
		if !p.Idle() {
			t.Errorf("p.Idle(): got false, want true\n%v", p)
		}
		if p.After != 0 {
			t.Errorf("after: got %v, want 0\n%v", p.After, p)
		}
	}
	escape := given.Pod(given.Policy(corev1.RestartPolicyOnFailure), given.With("main", given.Ended(0)), given.Ignored("s", given.Running(1)))
	if got := act(t, plan(escape, Normal), escape); got != "phase Succeeded" {
		t.Errorf("act(t, plan(escape, Normal), escape): got %q, want %q", got, "phase Succeeded")
	}
}

// JST-073: without a daemon that answers, those that name an image get it; the others are asked for again.
func TestWithoutADaemonImagesAreReplaced(t *testing.T) {
	pod := given.Pod(given.With("main", given.Ended(0)), given.With("a", given.Running(0), stop, "true", image, "exit:1"), given.Sidecar("b", given.Running(0)), given.ByImage("c", given.Running(0)),
		given.Ignored("i", given.Running(0)))
	if got := act(t, plan(pod, Normal), pod); got != "u: a b c" {
		t.Errorf("act(t, plan(pod, Normal), pod): got %q, want %q", got, "u: a b c")
	}
	silent := given.Completed(given.Request(prefix+"u", "a", "b", "c"), restart.MessageNoAnswer)
	p := plan(pod, Normal, silent)
	got := act(t, p, pod)
	if got != "image of a=exit:1, image of c=exit:1" {
		t.Errorf("act(t, p, pod): got %q, want %q\n%v", got, "image of a=exit:1, image of c=exit:1", p)
	}
	if p.After != firstPause {
		t.Errorf("after: got %v, want %v\n%v", p.After, firstPause, p)
	}
	p = NewPlan(Snapshot{Pod: pod, Node: Normal, Requests: []*appsv1beta1.ContainerRecreateRequest{silent},
		Ended: map[types.UID]time.Time{silent.UID: given.Noon.Add(-firstPause)}, Now: given.Noon})
	if got := act(t, p, pod); got != "image of a=exit:1, image of c=exit:1; u-2: b" {
		t.Errorf("act(t, p, pod): got %q, want %q", got, "image of a=exit:1, image of c=exit:1; u-2: b")
	}
	pod.Spec.Containers[1].Image, pod.Spec.Containers[3].Image = "exit:1", "exit:1"
	if p := plan(pod, Normal, silent); !p.Images.Empty() {
		t.Errorf("p.Images.Empty(): got false, want true\n%v", p)
	}
	for _, message := range []string{"", restart.MessageDeadline, "failed to find runtime service"} { // a daemon has answered
		if p := plan(pod, Normal, given.Completed(given.Request(prefix+"u", "a", "b", "c"), message)); !p.Images.Empty() {
			t.Errorf("%s: p.Images.Empty(): got false, want true\n%s", message, p)
		}
	}
}

// A request of our name that is not for the pod is told of, and its name passed over; nothing is concluded
// from it.
func TestRequestsOfOthers(t *testing.T) {
	pod := given.Pod(given.With("main", given.Ended(0)), given.Sidecar("s", given.Running(0)))
	for name, change := range map[string]func(*appsv1beta1.ContainerRecreateRequest){
		"no owner":         func(r *appsv1beta1.ContainerRecreateRequest) { r.OwnerReferences = nil },
		"another owner":    func(r *appsv1beta1.ContainerRecreateRequest) { r.OwnerReferences[0].UID = "x" },
		"another kind":     func(r *appsv1beta1.ContainerRecreateRequest) { r.OwnerReferences[0].Kind = "Job" },
		"no controller":    func(r *appsv1beta1.ContainerRecreateRequest) { r.OwnerReferences[0].Controller = nil },
		"another pod":      func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.PodName = "q" },
		"of a former pod":  func(r *appsv1beta1.ContainerRecreateRequest) { r.Labels[pub.RecreatePodUID] = "v" },
		"another pod owns": func(r *appsv1beta1.ContainerRecreateRequest) { r.OwnerReferences[0].Name = "q" },
	} {
		for _, finished := range []bool{false, true} {
			r := given.Request(prefix+"u", "s")
			if finished {
				r = given.Completed(r, restart.MessageNoAnswer)
			}
			change(r)
			p := plan(pod, Normal, r)
			if got := act(t, p, pod); got != "u-2: s" {
				t.Errorf("%s: act(t, p, pod): got %q, want %q\n%+v", name, got, "u-2: s", p.Warnings)
			} else if len(p.Warnings) != 1 {
				t.Errorf("%s: len(p.Warnings): got %d, want 1\n%s\n%+v", name, len(p.Warnings), got, p.Warnings)
			} else if p.Warnings[0].Reason != NotOurs {
				t.Errorf("%s: p.Warnings[0].Reason: got %q, want %q\n%s\n%+v", name, p.Warnings[0].Reason, NotOurs, got, p.Warnings)
			} else if p.Warnings[0].About != r.Name {
				t.Errorf("%s: p.Warnings[0].About: got %q, want %q\n%s\n%+v", name, p.Warnings[0].About, r.Name, got, p.Warnings)
			} else if !strings.Contains(p.Warnings[0].Message, r.Name) {
				t.Errorf("%s: p.Warnings[0].Message: got %q, want it to contain %q\n%s\n%+v", name, p.Warnings[0].Message, r.Name, got, p.Warnings)
			}
		}
	}
	var all []*appsv1beta1.ContainerRecreateRequest
	for number := range last + 1 {
		r := given.Request(attempt{"u", false, number + 1}.name(), "s")
		r.OwnerReferences = nil
		all = append(all, r)
	}
	p := plan(pod, Normal, all...)
	if !p.Idle() {
		t.Errorf("p.Idle(): got false, want true\n%v", p)
	}
	if p.After != longestPause {
		t.Errorf("after: got %v, want %v\n%v", p.After, longestPause, p)
	}
	if !strings.Contains(p.Why, "all names of requests are taken") {
		t.Errorf("why: got %q, want it to contain %q\n%v", p.Why, "all names of requests are taken", p)
	}
}

// JST-032, JST-033 (part): names can be read back, and only those that are made are read.
func TestNamesOfRequestsCanBeReadBack(t *testing.T) {
	uid := types.UID("0a1b2c3d-0000-4000-8000-123456789012")
	for _, a := range []attempt{{uid, false, 1}, {uid, true, 1}, {uid, false, 2}, {uid, true, 99}} {
		if got, ok := attemptOf(a.name()); !ok || got != a || PodUID(a.name()) != uid || len(a.name()) > 253 {
			t.Errorf("%s: %+v", a.name(), got)
		}
	}
	if got := (attempt{uid, true, 1}).name(); got != "sidecar-termination-0a1b2c3d-0000-4000-8000-123456789012-ignore" {
		t.Errorf("(attempt{uid, true, 1}).name(): got %q, want %q", got, "sidecar-termination-0a1b2c3d-0000-4000-8000-123456789012-ignore")
	}
	for _, name := range []string{"", "x", "sidecar-termination-", "sidecar-termination", string(uid), fmt.Sprint(prefix, uid, "-1")} {
		if got := PodUID(name); got != "" {
			t.Errorf("%s: PodUID(name): got %q, want %q", name, got, "")
		}
	}
	for _, name := range []string{fmt.Sprint(prefix, uid, "-02"), fmt.Sprint(prefix, uid, "-100"), fmt.Sprint(prefix, uid, "-2-ignore")} {
		if got := PodUID(name); got == uid {
			t.Errorf("%s is read as a request of the pod", name)
		}
	}
}

// JST-050 (part), JST-052: events list the sidecars, sorted, and the way.
func TestEventsListTheSidecarsAndTheWay(t *testing.T) {
	main := given.With("main", given.Ended(0))
	for want, test := range map[string]struct {
		way  Way
		plan *Plan
	}{
		"stopping sidecars a, b, by ContainerRecreateRequest sidecar-termination-u (CRR)": {ByRequest, plan(given.Pod(main, given.Sidecar("b", given.Running(0)), given.Sidecar("a", given.Running(0))), Normal)},
		"stopping sidecars a, b, by in-place update":                                      {ByImage, plan(given.Pod(main, given.ByImage("b", given.Running(0)), given.ByImage("a", given.Running(0))), Virtual)},
		"stopping sidecar a, by kubelet":                                                  {ByPhase, plan(given.Pod(main, given.Ignored("a", given.Running(0))), Normal)},
	} {
		if got := Event(test.way, test.plan); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// JST-037, JST-042, JST-070: what is the user's to know stands in the manual: what the image must do, what
// setting the phase ahead costs, and how to mend a sidecar that starts again.
func TestTheManualSaysWhatIsTheUsers(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kinds/sidecar-terminator.md")
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(string(text)), " ")
	for _, words := range []string{"with 0 soon, when it is run with the sidecar's own command, arguments and variables",
		"others take the pod's resources for free: its node, its volumes, its address", "Let the sidecar exit with 0 when it gets SIGTERM",
		stop, ignoring, image, StartsAgain, NoWay, NotOurs, Done} {
		if !strings.Contains(page, words) {
			t.Errorf("the manual does not say %q", words)
		}
	}
}
