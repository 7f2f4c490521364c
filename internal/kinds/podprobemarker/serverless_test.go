package podprobemarker

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	given "github.com/afloat-project/afloat/internal/kinds/podprobemarker/podprobemarkertest"
)

// PPM-110 (part), PPM-111, PPM-112 (part): what a pod takes along, in the order of names.
func TestWhatPodsTakeAlong(t *testing.T) {
	idle := given.Probe("idle", plain("example.com/idle"))
	const entry = `{"name":"%s","containerName":"%s","probe":{"exec":{"command":["/%s"]}},"podConditionType":"example.com/%s"}`
	of := func(name, container, condition string) string {
		return fmt.Sprintf(entry, name, container, name, condition)
	}
	side := func(container string) probe {
		return given.Probe("side", plain("example.com/side"), func(p *probe) { p.ContainerName = container })
	}
	for name, test := range map[string]struct {
		markers       []*marker
		probes, names string
	}{
		"none":                    {nil, "", ""},
		"two, in order":           {[]*marker{given.Marker("z", side("native")), given.Marker("b", given.Probe("idle"))}, "[" + of("idle", "app", "idle") + "," + of("side", "native", "side") + "]", "b,z"},
		"one that selects others": {[]*marker{func() *marker { m := given.Marker("b", idle); m.Spec.Selector.MatchLabels["app"] = "db"; return m }()}, "", ""},
		"one that goes":           {[]*marker{func() *marker { m := given.Marker("b", idle); m.DeletionTimestamp = &given.Noon; return m }()}, "", ""},
		"no condition":            {[]*marker{given.Marker("b", given.Probe("idle", func(p *probe) { p.PodConditionType = "" }))}, "", ""},
		"no such container":       {[]*marker{given.Marker("b", side("none"))}, "", ""},
		"an init container":       {[]*marker{given.Marker("b", side("init"))}, "", ""},
		"the same condition":      {[]*marker{given.Marker("b", idle), given.Marker("c", given.Probe("other", plain("example.com/idle")))}, "[" + of("idle", "app", "idle") + "]", "b"},
		"the same probe":          {[]*marker{given.Marker("b", idle), given.Marker("c", given.Probe("idle", plain("example.com/other")))}, "[" + of("idle", "app", "idle") + "]", "b"},
	} {
		pod := given.Pod("a", func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "init"}, {Name: "native", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}}
		})
		probes, names := Travelling(pod, test.markers)
		if probes != test.probes {
			t.Errorf("%s: probes: got %q, want %q", name, probes, test.probes)
		}
		if names != test.names {
			t.Errorf("%s: names: got %q, want %q", name, names, test.names)
		}
	}
	var many []*marker
	for i := range 100 {
		many = append(many, given.Marker(fmt.Sprint("m", i), given.Probe(fmt.Sprint("p", i), plain(fmt.Sprint("example.com/p", i)), func(p *probe) { p.Probe = given.Exec(strings.Repeat("x", 2000)) })))
	}
	probes, _ := Travelling(given.Pod("a"), many)
	if len(probes) > mostTravelling+1000 {
		t.Errorf("number of probes: got %d, want at most %d", len(probes), mostTravelling+1000)
	}
	if len(probes) < mostTravelling/2 {
		t.Errorf("number of probes: got %d, want at least %d", len(probes), mostTravelling/2)
	}
}
