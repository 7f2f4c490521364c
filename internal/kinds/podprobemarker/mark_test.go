package podprobemarker

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/api/pub"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

const (
	succeeded = appsv1alpha1.ProbeSucceeded
	failed    = appsv1alpha1.ProbeFailed
	unknown   = appsv1alpha1.ProbeUnknown
)

// patches are what the plan writes to pods.
func (s *scene) patches() string {
	p := PlanNode(&s.Snapshot)
	var parts []string
	for i := range p.Pods {
		of := &p.Pods[i]
		parts = append(parts, of.Pod.Name+": "+of.Status(of.Pod).String()+" | "+of.Metadata(of.Pod).String())
	}
	return strings.Join(parts, "; ")
}

func results(s *scene, states ...appsv1alpha1.ContainerProbeState) *scene {
	s.List.Status.PodProbeStatuses = append(s.List.Status.PodProbeStatuses, given.Results(s.Pods[0], states...))
	return s
}

// with has the pod have a condition and labels.
func with(status corev1.ConditionStatus, message string, labels map[string]string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: "example.com/idle", Status: status, Message: message,
			LastProbeTime: given.Noon, LastTransitionTime: given.Noon})
		for key, value := range labels {
			p.Labels[key] = value
		}
	}
}

// PPM-001 (part), PPM-002 (part), PPM-067, PPM-068, PPM-069, PPM-071, PPM-072, PPM-075, PPM-144: what a pod
// gets of a result.
func TestWhatPodsGetOfResults(t *testing.T) {
	single := func(p *probe) { p.MarkerPolicy = p.MarkerPolicy[:1] }
	idle := given.Probe("idle")
	for name, test := range map[string]struct {
		pod    *corev1.Pod
		probe  probe
		result appsv1alpha1.ContainerProbeState
		change func(*scene)
		want   string
	}{
		"the first result":             {given.Pod("a"), idle, given.Result("m#idle", succeeded, "ok"), nil, "a: example.com/idle=True | label idle=true"},
		"a pod without labels":         {given.Pod("a", func(p *corev1.Pod) { p.Labels = map[string]string{"app": "web"} }), idle, given.Result("m#idle", failed, "no"), nil, "a: example.com/idle=False | label idle=false"},
		"nothing is new":               {given.Pod("a", with("True", "ok", map[string]string{"idle": "true"})), idle, given.Result("m#idle", succeeded, "ok"), nil, ""},
		"a new message":                {given.Pod("a", with("True", "ok", map[string]string{"idle": "true"})), idle, given.Result("m#idle", succeeded, "fine"), nil, "a: example.com/idle=True | "},
		"only a new time":              {given.Pod("a", with("True", "ok", map[string]string{"idle": "true"})), idle, appsv1alpha1.ContainerProbeState{Name: "m#idle", State: succeeded, Message: "ok", LastProbeTime: metav1.NewTime(given.Noon.Add(time.Hour))}, nil, ""},
		"it turns":                     {given.Pod("a", with("True", "ok", map[string]string{"idle": "true"})), idle, given.Result("m#idle", failed, "no"), nil, "a: example.com/idle=False | label idle=false"},
		"one policy, and it turns":     {given.Pod("a", with("True", "ok", map[string]string{"idle": "true"})), given.Probe("idle", single), given.Result("m#idle", failed, "no"), nil, "a: example.com/idle=False | no label idle"},
		"no result yet":                {given.Pod("a"), idle, given.Result("m#idle", unknown, ""), nil, ""},
		"the daemon began anew":        {given.Pod("a", with("True", "ok", map[string]string{"idle": "true"})), idle, given.Result("m#idle", unknown, ""), nil, ""},
		"the container was replaced":   {given.Pod("a", with("True", "ok", map[string]string{"idle": "true"})), idle, given.Result("m#idle", unknown, ""), func(s *scene) { s.replaced = true }, "a: example.com/idle=False | "},
		"it was replaced, and told so": {given.Pod("a", with("False", "container app was replaced, and there is no result of the new one yet", nil)), idle, given.Result("m#idle", unknown, ""), func(s *scene) { s.replaced = true }, ""},
		"only a condition":             {given.Pod("a"), given.Probe("idle", plain("example.com/idle")), given.Result("m#idle", succeeded, ""), nil, "a: example.com/idle=True | "},
		"only policies":                {given.Pod("a"), given.Probe("idle", func(p *probe) { p.PodConditionType = "" }), given.Result("m#idle", succeeded, ""), nil, "a:  | label idle=true"},
		"annotations": {given.Pod("a"), given.Probe("idle", plain("example.com/idle"), func(p *probe) {
			p.MarkerPolicy = []appsv1alpha1.ProbeMarkerPolicy{{State: succeeded, Annotations: map[string]string{pub.PodDeletionCost: "-10"}}}
		}), given.Result("m#idle", succeeded, ""), nil, "a: example.com/idle=True | annotation controller.kubernetes.io/pod-deletion-cost"},
		"of a probe that is gone":      {given.Pod("a"), idle, given.Result("m#other", succeeded, ""), nil, ""},
		"of a marker that is gone":     {given.Pod("a"), idle, given.Result("m#idle", succeeded, ""), func(s *scene) { s.markers = nil }, ""},
		"of a marker that goes":        {given.Pod("a"), idle, given.Result("m#idle", succeeded, ""), func(s *scene) { s.markers[0].DeletionTimestamp = &given.Noon }, ""},
		"of another pod of the name":   {given.Pod("a"), idle, given.Result("m#idle", succeeded, ""), func(s *scene) { s.List.Status.PodProbeStatuses[0].UID = "old" }, ""},
		"of a pod somewhere else":      {given.Pod("a"), idle, given.Result("m#idle", succeeded, ""), func(s *scene) { s.List.Status.PodProbeStatuses[0].Namespace = "other" }, ""},
		"of a pod that goes":           {given.Pod("a", func(p *corev1.Pod) { p.DeletionTimestamp = &given.Noon }), idle, given.Result("m#idle", succeeded, ""), nil, ""},
		"a state that nobody knows":    {given.Pod("a"), idle, given.Result("m#idle", "Odd", ""), nil, ""},
		"a label that another has set": {given.Pod("a", with("True", "ok", map[string]string{"idle": "maybe"})), idle, given.Result("m#idle", succeeded, "ok"), nil, "a:  | label idle=true"},
	} {
		s := results(newScene([]*corev1.Pod{test.pod}, given.Marker("m", test.probe)), test.result)
		s.List.Spec.PodProbes = PlanNode(&s.Snapshot).List
		if test.change != nil {
			test.change(s)
		}
		if got := s.patches(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// PPM-069 (part), PPM-074 (part), PPM-092 (part): conditions have message and times of the result; the patch
// has nothing but what is owned.
func TestConditionsTellWhatTheNodeTold(t *testing.T) {
	s := results(newScene([]*corev1.Pod{given.Pod("a")}, given.Marker("m", given.Probe("idle"))), given.Result("m#idle", succeeded, strings.Repeat("ü", 600)))
	p := PlanNode(&s.Snapshot)
	c := p.Pods[0].Conditions[0]
	if c.LastProbeTime != given.Noon {
		t.Errorf("time of the last probe: got %v, want %v\n%+v", c.LastProbeTime, given.Noon, c)
	}
	if c.LastTransitionTime != given.Noon {
		t.Errorf("time of the last change: got %v, want %v\n%+v", c.LastTransitionTime, given.Noon, c)
	}
	if len(c.Message) != 1024 {
		t.Errorf("length of the message: got %d, want 1024\n%+v", len(c.Message), c)
	}
	if !utf8.ValidString(c.Message) {
		t.Errorf("the message is valid UTF-8: got false, want true\n%+v", c)
	}
	text := bounded("x" + strings.Repeat("ü", 600))
	if len(text) != 1023 {
		t.Errorf("length of the text: got %d, want 1023", len(text))
	}
	if !utf8.ValidString(text) {
		t.Error("the text is valid UTF-8: got false, want true")
	}
	body, err := p.Pods[0].Status(s.Pods[0]).JSON(s.Pods[0])
	if err != nil {
		t.Errorf("unexpected error: %v\n%q", err, string(body))
	} else if strings.Contains(string(body), "labels") {
		t.Errorf("body: got %q, want it not to contain %q\n%v", string(body), "labels", err)
	} else if strings.Contains(string(body), "Initialized") {
		t.Errorf("body: got %q, want it not to contain %q\n%v", string(body), "Initialized", err)
	} else if !strings.Contains(string(body), `"lastProbeTime":"2026-01-01T12:00:00Z"`) {
		t.Errorf("body: got %q, want it to contain %q\n%v", string(body), `"lastProbeTime":"2026-01-01T12:00:00Z"`, err)
	}
}

// PPM-070, PPM-073: where two write the same, the first by name has it, the other is told; what one takes
// away another may give, or keep.
func TestTwoPodProbeMarkersOfOnePod(t *testing.T) {
	role := func(state appsv1alpha1.ProbeState, value string) func(*probe) {
		return func(p *probe) {
			p.PodConditionType = ""
			p.MarkerPolicy = []appsv1alpha1.ProbeMarkerPolicy{{State: state, Labels: map[string]string{"role": value}}}
		}
	}
	primary := func(p *corev1.Pod) { p.Labels["role"] = "primary" }
	for name, test := range map[string]struct {
		first, second appsv1alpha1.ProbeState // of a, which sets role on success, and b, which sets it on failure
		want          string
	}{
		"both set it":                 {succeeded, failed, "a:  | label role=of-a"},
		"one drops it, the other not": {failed, failed, "a:  | label role=of-b"},
		"both drop it":                {failed, succeeded, "a:  | no label role"},
		"one keeps it":                {failed, unknown, ""},
		"the first knows nothing now": {unknown, failed, ""}, // its container was replaced: the label does not turn meanwhile
	} {
		s := newScene([]*corev1.Pod{given.Pod("a", primary)}, given.Marker("b", given.Probe("x", role(failed, "of-b"))), given.Marker("a", given.Probe("x", role(succeeded, "of-a"))))
		results(s, given.Result("b#x", test.second, ""), given.Result("a#x", test.first, ""))
		s.List.Spec.PodProbes = PlanNode(&s.Snapshot).List
		if got := s.patches(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	s := newScene([]*corev1.Pod{given.Pod("a")}, given.Marker("b", given.Probe("x", plain("example.com/c"))), given.Marker("a", given.Probe("x", plain("example.com/c"))))
	results(s, given.Result("b#x", succeeded, ""), given.Result("a#x", failed, ""))
	s.List.Spec.PodProbes = PlanNode(&s.Snapshot).List
	p := PlanNode(&s.Snapshot)
	if got := s.patches(); got != "a: example.com/c=False | " {
		t.Errorf("patches: got %q, want %q\n%v", got, "a: example.com/c=False | ", p.Warnings)
	} else if len(p.Warnings) != 1 {
		t.Errorf("number of warnings: got %d, want 1\n%s\n%v", len(p.Warnings), got, p.Warnings)
	} else if p.Warnings[0].Marker.Name != "b" {
		t.Errorf("name of the marker of the first warning: got %q, want %q\n%s\n%v", p.Warnings[0].Marker.Name,
			"b", got, p.Warnings)
	} else if p.Warnings[0].Reason != ConditionConflict {
		t.Errorf("reason of the first warning: got %q, want %q\n%s\n%v", p.Warnings[0].Reason, ConditionConflict,
			got, p.Warnings)
	} else if !strings.Contains(p.Warnings[0].Message, "PodProbeMarker a") {
		t.Errorf("message of the first warning: got %q, want it to contain %q\n%s\n%v", p.Warnings[0].Message,
			"PodProbeMarker a", got, p.Warnings)
	}
}

// Annotations of a pod that are not known are looked at before anything is written, and what they are to be
// has a sum.
func TestAnnotationsThatAreNotKnown(t *testing.T) {
	cost := given.Probe("idle", plain(""), func(p *probe) {
		p.MarkerPolicy = []appsv1alpha1.ProbeMarkerPolicy{{State: succeeded, Annotations: map[string]string{"a": "1", "b": "2"}}}
	})
	sum := func(state appsv1alpha1.ProbeState) uint64 {
		s := results(newScene([]*corev1.Pod{given.Pod("a")}, given.Marker("m", cost)), given.Result("m#idle", state, ""))
		s.Whole = func(*corev1.Pod) bool { return false }
		p := PlanNode(&s.Snapshot)
		if len(p.Pods) != 1 {
			t.Fatalf("number of pods: got %d, want 1\n%+v", len(p.Pods), p.Pods)
		} else if !p.Pods[0].Unseen {
			t.Fatalf("first pod is unseen: got false, want true\n%+v", p.Pods)
		} else if !p.Pods[0].Metadata(s.Pods[0]).Empty() {
			t.Fatalf("the first pod needs no change of its metadata: got false, want true\n%+v", p.Pods)
		}
		return p.Pods[0].Sum()
	}
	first, second := sum(succeeded), sum(succeeded)
	if first == sum(failed) {
		t.Errorf("what succeeded and what failed have the same sum %v", first)
	}
	if first != second {
		t.Errorf("the sum of the same state: got %v and %v", first, second)
	}
}

// PPM-004 (part), PPM-041 (part), PPM-043, PPM-114, PPM-115, PPM-116 (part): on virtual nodes the condition
// is the result.
func TestPodsOnVirtualNodesAreMarked(t *testing.T) {
	took := func(p *corev1.Pod) {
		p.Annotations = map[string]string{pub.PodProbeMarkers: "l,m"}
		p.Labels["app"] = "changed"
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		gate bool
		want string
	}{
		"no condition":               {given.Pod("a"), true, ""},
		"it is true":                 {given.Pod("a", with("True", "", nil)), true, "a:  | label idle=true"},
		"it is false":                {given.Pod("a", with("False", "", map[string]string{"idle": "true"})), true, "a:  | label idle=false"},
		"it is unknown":              {given.Pod("a", with("Unknown", "", map[string]string{"idle": "true"})), true, ""},
		"the gate is off":            {given.Pod("a", with("True", "", nil)), false, ""},
		"it took the probes with it": {given.Pod("a", with("True", "", nil), took), true, "a:  | label idle=true"},
		"it ends":                    {given.Pod("a", with("True", "", nil), func(p *corev1.Pod) { p.DeletionTimestamp = &given.Noon }), true, ""},
	} {
		s := newScene([]*corev1.Pod{test.pod}, given.Marker("m", given.Probe("idle"), given.Probe("cost", func(p *probe) { p.PodConditionType = "" })))
		s.List, s.Serverless = nil, test.gate
		s.Node.Labels[pub.NodeType] = pub.VirtualNode
		if got := s.patches(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The plan for a world in which all is done is empty, whatever it is made from.
func TestNothingIsPlannedTwice(t *testing.T) {
	s := newScene([]*corev1.Pod{given.Pod("a"), given.Pod("b")}, given.Marker("m", given.Probe("idle")), given.Marker("n", given.Probe("idle", plain("example.com/idle"))))
	s.List.Status.PodProbeStatuses = []appsv1alpha1.PodProbeStatus{given.Results(s.Pods[0], given.Result("m#idle", succeeded, "ok"), given.Result("n#idle", failed, "no")),
		given.Results(s.Pods[1], given.Result("m#idle", failed, "no"))}
	p := PlanNode(&s.Snapshot)
	s.List.Spec.PodProbes = p.List
	for i := range p.Pods {
		of := &p.Pods[i]
		of.Pod.Status.Conditions = append(of.Pod.Status.Conditions, of.Conditions...)
		for key, value := range of.Labels {
			of.Pod.Labels[key] = *value
		}
	}
	if p := PlanNode(&s.Snapshot); p.String() != "" {
		t.Errorf("plan of the node: got %q, want %q", p.String(), "")
	}
}
