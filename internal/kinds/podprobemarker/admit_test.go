package podprobemarker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

type (
	marker    = appsv1alpha1.PodProbeMarker
	probe     = appsv1alpha1.PodContainerProbe
	probeSpec = appsv1alpha1.ContainerProbeSpec
)

// handler replaces what the first probe does.
func handler(h appsv1alpha1.ContainerProbeHandler) func(*marker) {
	return func(m *marker) { m.Spec.Probes[0].Probe = probeSpec{ContainerProbeHandler: h} }
}

func get(change func(*appsv1alpha1.HTTPGetAction)) func(*marker) {
	action := &appsv1alpha1.HTTPGetAction{Path: "/idle?x=1", Port: intstr.FromInt32(80), Scheme: corev1.URISchemeHTTP}
	change(action)
	return handler(appsv1alpha1.ContainerProbeHandler{HTTPGet: action})
}

func socket(host string, port intstr.IntOrString) func(*marker) {
	return handler(appsv1alpha1.ContainerProbeHandler{TCPSocket: &corev1.TCPSocketAction{Host: host, Port: port}})
}

func first(change func(*probe)) func(*marker) { return func(m *marker) { change(&m.Spec.Probes[0]) } }

// PPM-010 (part), PPM-011 (part), PPM-014 (part), PPM-015, PPM-021, PPM-023, PPM-024, PPM-025, PPM-026,
// PPM-027, PPM-028, PPM-029, PPM-030, PPM-031, PPM-033: what is refused, and with which words.
func TestWhatIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*marker)
		want   string // empty: admitted
	}{
		"all is well":              {func(*marker) {}, ""},
		"no selector":              {func(m *marker) { m.Spec.Selector = nil }, "spec.selector: Required"},
		"an empty selector":        {func(m *marker) { m.Spec.Selector = &metav1.LabelSelector{} }, "spec.selector: Required"},
		"a selector that is wrong": {func(m *marker) { m.Spec.Selector.MatchLabels["a"] = "b c" }, "spec.selector.matchLabels: Invalid"},
		"a selector of expressions": {func(m *marker) {
			m.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Exists"}}}
		}, ""},
		"a selector that takes long": {func(m *marker) {
			m.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "In", Values: make([]string, 1000)}}
		}, "spec.selector: Too many"},
		"no probes":                    {func(m *marker) { m.Spec.Probes = nil }, "spec.probes: Required"},
		"too many probes":              {func(m *marker) { m.Spec.Probes = make([]probe, 33) }, "spec.probes: Too many"},
		"probes that are too long":     {first(func(p *probe) { p.Probe.Exec.Command = []string{strings.Repeat("x", 40<<10)} }), "spec.probes: Too long"},
		"no name":                      {first(func(p *probe) { p.Name = "" }), "spec.probes[0].name: Required"},
		"a name with #":                {first(func(p *probe) { p.Name = "a#b" }), "spec.probes[0].name: Invalid"},
		"a long name":                  {first(func(p *probe) { p.Name = strings.Repeat("x", 254) }), "spec.probes[0].name: Too long"},
		"a name that is a condition":   {first(func(p *probe) { p.Name = "KruisePodReady" }), "spec.probes[0].name: Invalid"},
		"two probes of a name":         {func(m *marker) { m.Spec.Probes = append(m.Spec.Probes, given.Probe("idle", plain("x"))) }, "spec.probes[1].name: Duplicate"},
		"neither condition nor policy": {first(func(p *probe) { p.PodConditionType, p.MarkerPolicy = "", nil }), "spec.probes[0].podConditionType: Required"},
		"only a condition":             {first(func(p *probe) { p.MarkerPolicy = nil }), ""},
		"only a policy":                {first(func(p *probe) { p.PodConditionType = "" }), ""},
		"the condition Ready":          {first(func(p *probe) { p.PodConditionType = "Ready" }), "spec.probes[0].podConditionType: Invalid"},
		"that pods are disrupted":      {first(func(p *probe) { p.PodConditionType = "DisruptionTarget" }), "spec.probes[0].podConditionType: Invalid"},
		"the condition of in-place":    {first(func(p *probe) { p.PodConditionType = "InPlaceUpdateReady" }), "spec.probes[0].podConditionType: Invalid"},
		"a condition that is no name":  {first(func(p *probe) { p.PodConditionType = "a b" }), "spec.probes[0].podConditionType: Invalid"},
		"two probes of a condition": {func(m *marker) {
			m.Spec.Probes = append(m.Spec.Probes, given.Probe("other", plain("example.com/idle")))
		}, "spec.probes[1].podConditionType: Duplicate"},
		"no container":                  {first(func(p *probe) { p.ContainerName = "" }), "spec.probes[0].containerName: Required"},
		"no handler":                    {handler(appsv1alpha1.ContainerProbeHandler{}), "must specify a handler type"},
		"only grpc":                     {handler(appsv1alpha1.ContainerProbeHandler{GRPC: &appsv1alpha1.GRPCAction{Port: 1}}), "must specify a handler type"},
		"two handlers":                  {first(func(p *probe) { p.Probe.TCPSocket = &corev1.TCPSocketAction{Port: intstr.FromInt32(1)} }), "may not specify more than 1 handler type"},
		"no command":                    {handler(appsv1alpha1.ContainerProbeHandler{Exec: &corev1.ExecAction{}}), "exec.command: Required"},
		"a socket":                      {socket("", intstr.FromInt32(80)), ""},
		"a socket by name":              {socket("", intstr.FromString("http")), ""},
		"a socket by a number in words": {socket("", intstr.FromString("8080")), ""},
		"a socket of another host":      {socket("169.254.169.254", intstr.FromInt32(80)), "host field in probes is not allowed"},
		"port 0":                        {socket("", intstr.FromInt32(0)), "tcpSocket.port: Invalid"},
		"port 70000":                    {socket("", intstr.FromString("70000")), "tcpSocket.port: Invalid"},
		"a port that is no name":        {socket("", intstr.FromString("a_b")), "tcpSocket.port: Invalid"},
		"a request":                     {get(func(*appsv1alpha1.HTTPGetAction) {}), ""},
		"a request to another host": {get(func(a *appsv1alpha1.HTTPGetAction) { a.Host = "169.254.169.254" }),
			"host field in probes is not allowed"},
		"no path":                {get(func(a *appsv1alpha1.HTTPGetAction) { a.Path = "" }), "httpGet.path: Required"},
		"a path that is none":    {get(func(a *appsv1alpha1.HTTPGetAction) { a.Path = "/%zz" }), "httpGet.path: Invalid"},
		"a port of a request":    {get(func(a *appsv1alpha1.HTTPGetAction) { a.Port = intstr.FromInt32(-1) }), "httpGet.port: Invalid"},
		"no scheme":              {get(func(a *appsv1alpha1.HTTPGetAction) { a.Scheme = "" }), "httpGet.scheme: Unsupported"},
		"scheme HTTPS":           {get(func(a *appsv1alpha1.HTTPGetAction) { a.Scheme = "HTTPS" }), ""},
		"a header that is wrong": {get(func(a *appsv1alpha1.HTTPGetAction) { a.HTTPHeaders = []corev1.HTTPHeader{{Name: "a b"}} }), "httpHeaders[0].name: Invalid"},
		"a negative delay":       {first(func(p *probe) { p.Probe.InitialDelaySeconds = -1 }), "initialDelaySeconds: Invalid"},
		"a negative time-out":    {first(func(p *probe) { p.Probe.TimeoutSeconds = -1 }), "timeoutSeconds: Invalid"},
		"a negative period":      {first(func(p *probe) { p.Probe.PeriodSeconds = -1 }), "periodSeconds: Invalid"},
		"negative successes":     {first(func(p *probe) { p.Probe.SuccessThreshold = -1 }), "successThreshold: Invalid"},
		"negative failures":      {first(func(p *probe) { p.Probe.FailureThreshold = -1 }), "failureThreshold: Invalid"},
		"a policy for Unknown":   {first(func(p *probe) { p.MarkerPolicy[0].State = appsv1alpha1.ProbeUnknown }), "markerPolicy[0].state: Unsupported"},
		"two policies of a state": {first(func(p *probe) { p.MarkerPolicy[1].State = appsv1alpha1.ProbeSucceeded }),
			"markerPolicy[1].state: Duplicate"},
		"a policy without anything": {first(func(p *probe) { p.MarkerPolicy[0].Labels = nil }), "markerPolicy[0]: Required"},
		"a policy of annotations": {first(func(p *probe) {
			p.MarkerPolicy[0].Labels, p.MarkerPolicy[0].Annotations = nil, map[string]string{"controller.kubernetes.io/pod-deletion-cost": "-10"}
		}), ""},
		"a label that is wrong":      {first(func(p *probe) { p.MarkerPolicy[0].Labels = map[string]string{"a": "b c"} }), "markerPolicy[0].labels: Invalid"},
		"an annotation that is none": {first(func(p *probe) { p.MarkerPolicy[0].Annotations = map[string]string{"a b": ""} }), "markerPolicy[0].annotations: Invalid"},
		"two probes write a label": {func(m *marker) {
			m.Spec.Probes = append(m.Spec.Probes, given.Probe("other", func(p *probe) { p.MarkerPolicy[0].Labels["idle"] = "x" }))
		}, "another probe writes it for the same state"},
	} {
		m := given.Marker("idle", given.Probe("idle"))
		test.change(m)
		got := fmt.Sprint(Validate(m, nil).ToAggregate())
		if test.want == "" && got != "<nil>" {
			t.Errorf("%s: got %q, want %q; %s, want %q", name, got, "<nil>", got, test.want)
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, want it to contain %q", name, got, test.want)
		}
	}
}

// PPM-024 (part), PPM-025 (part): the six conditions of every pod are neither names nor conditions of probes.
func TestConditionsOfEveryPodAreTaken(t *testing.T) {
	for _, name := range []string{"PodScheduled", "Initialized", "Ready", "ContainersReady", "KruisePodReady", "InPlaceUpdateReady"} {
		m := given.Marker("idle", given.Probe("idle", func(p *probe) { p.Name, p.PodConditionType = name, name }))
		if errs := Validate(m, nil); len(errs) != 2 {
			t.Errorf("%s: number of errors: got %d, want 2\n%v", name, len(errs), errs)
		}
	}
}

// plain is a probe with a condition alone.
func plain(condition string) func(*probe) {
	return func(p *probe) { p.PodConditionType, p.MarkerPolicy = condition, nil }
}

// PPM-022: all but the selector may change.
func TestOnlyTheSelectorCannotBeChanged(t *testing.T) {
	old := given.Marker("idle", given.Probe("idle"))
	changed := given.Marker("idle", given.Probe("other"), given.Probe("more"))
	if errs := Validate(changed, old); len(errs) > 0 {
		t.Errorf("errors: got %v, want none", errs)
	}
	changed.Spec.Selector.MatchLabels = map[string]string{"app": "other"}
	if errs := Validate(changed, old); len(errs) != 1 {
		t.Errorf("number of errors: got %d, want 1\n%v", len(errs), errs)
	} else if !strings.Contains(errs[0].Error(), "selector must be immutable") {
		t.Errorf("first error: got %q, want it to contain %q\n%v", errs[0].Error(), "selector must be immutable",
			errs)
	}
}

// PPM-012 (part), PPM-013: a request without a scheme gets HTTP, as the documentation of the reference has
// it, and nothing else is filled in.
func TestARequestWithoutASchemeIsAdmitted(t *testing.T) {
	var object map[string]any
	if err := json.Unmarshal([]byte(`{"spec":{"probes":[{"probe":{"exec":{}}},{"probe":{"httpGet":{"path":"/"}}},{"probe":{"httpGet":{"scheme":null}}},
		{"probe":{"httpGet":{"scheme":"HTTPS"}}},{"probe":{"httpGet":7}},7]}}`), &object); err != nil {
		t.Fatal(err)
	}
	patch := Default(object)
	if len(patch) != 2 {
		t.Errorf("number of operations: got %d, want 2\n%v", len(patch), patch)
	} else if patch[0].Path != "/spec/probes/1/probe/httpGet/scheme" {
		t.Errorf("path of the first of the patch: got %q, want %q\n%v", patch[0].Path,
			"/spec/probes/1/probe/httpGet/scheme", patch)
	} else if patch[1].Path != "/spec/probes/2/probe/httpGet/scheme" {
		t.Errorf("path of the second of the patch: got %q, want %q\n%v", patch[1].Path,
			"/spec/probes/2/probe/httpGet/scheme", patch)
	} else if patch[0].Value != "HTTP" {
		t.Errorf("value of the first of the patch: got %v, want %q\n%v", patch[0].Value, "HTTP", patch)
	}
	if patch := Default(map[string]any{"spec": 7}); len(patch) > 0 {
		t.Errorf(`defaults of a bad spec: got %v, want none`, patch)
	}
}
