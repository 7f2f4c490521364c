package inplace

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
)

// TestInitContainerImages: the patch names the list that the container stands in; an ordinary one is not
// waited for (IPU-318).
func TestInitContainerImages(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := webPod(func(pod *corev1.Pod) {
		pod.Spec.InitContainers = []corev1.Container{{Name: "setup", Image: "setup:1"},
			{Name: "side", Image: "side:1", RestartPolicy: &always}}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", ContainerID: "c-0", ImageID: "sha-0"},
			runs("side", "side:1", "sha-s", "c-s", noon)}
	})
	patch, err := to("web-2", &Change{Parts: Parts{Images: map[string]string{"setup": "setup:2", "side": "side:2"}},
		Stops: []string{"side"}}, 0).Start(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	pod = applied(t, pod, patch)
	if image := pod.Spec.InitContainers[0].Image; image != "setup:2" {
		t.Errorf("image of setup: got %s, want setup:2", image)
	}
	if image := pod.Spec.InitContainers[1].Image; image != "side:2" {
		t.Errorf("image of side: got %s, want side:2", image)
	}
	if n := len(pod.Spec.Containers); n != 2 {
		t.Errorf("containers beside the init containers: got %d, want 2", n)
	}
	status, err := Progress(pod, noon)
	if err != nil {
		t.Errorf("progress before side is replaced: %v", err)
	}
	if want := "container side does not run side:2 yet"; status.Waiting != want {
		t.Errorf("the update waits: got %q, want %q", status.Waiting, want)
	}
	pod.Status.InitContainerStatuses[1] = runs("side", "side:2", "sha-s2", "c-s2", noon)
	if status, err = Progress(pod, noon); err != nil {
		t.Errorf("progress after side was replaced: %v", err)
	} else if !status.Complete {
		t.Errorf("the update is not complete after side was replaced: %+v", status)
	}
}

// TestExplains: a quantity of another revision is distinguished from one that somebody else set (IPU-326).
func TestExplains(t *testing.T) {
	of := func(pairs ...string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: quantities(pairs...)}
	}
	tests := map[string]struct {
		other, want, have corev1.ResourceRequirements
		explained         bool
	}{
		"as it should be":           {of("cpu", "3"), of("cpu", "2"), of("cpu", "2"), false},
		"of the other":              {of("cpu", "3"), of("cpu", "2"), of("cpu", "3000m"), true},
		"of nobody's":               {of("cpu", "3"), of("cpu", "2"), of("cpu", "4"), false},
		"the other says nothing":    {of(), of("cpu", "2"), of("cpu", "3"), false},
		"the template says nothing": {of("cpu", "3"), of(), of("cpu", "3"), false},
		"one of two is somebody's": {of("cpu", "3", "memory", "3Gi"), of("cpu", "2", "memory", "2Gi"), of("cpu", "3", "memory", "4Gi"),
			false},
		"one of two is right": {of("cpu", "3", "memory", "3Gi"), of("cpu", "2", "memory", "2Gi"), of("cpu", "3", "memory", "2Gi"),
			true},
		"what cannot be resized": {of("ephemeral-storage", "3Gi"), of("ephemeral-storage", "2Gi"), of("ephemeral-storage", "3Gi"),
			false},
		"what only the pod's has stays": {of("cpu", "3"), of("cpu", "2"), of("cpu", "2", "memory", "1Gi"), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			have := Quantities(tt.have) // as the API server completes it
			if got := Explains(Quantities(tt.other), Lacking(Quantities(tt.want), have), have); got != tt.explained {
				t.Errorf("another revision explains the quantity: got %t, want %t", got, tt.explained)
			}
		})
	}
}

// A change is not empty if it has two kinds of parts, also if there are equally many of both.
func TestPartsAreEmptyOnlyWithoutAnyKind(t *testing.T) {
	kinds := []func(*Parts){
		func(p *Parts) { p.Images = map[string]string{"main": "main:2"} },
		func(p *Parts) { p.Refs = map[string]RefMetadata{"main": {}} },
		func(p *Parts) { p.Resources = map[string]corev1.ResourceRequirements{"main": {}} },
		func(p *Parts) { p.Restarts = []string{"main"} },
	}
	for some := range 1 << len(kinds) {
		var parts Parts
		for i, set := range kinds {
			if some&(1<<i) != 0 {
				set(&parts)
			}
		}
		if got, want := parts.Empty(), some == 0; got != want {
			t.Errorf("parts %+v are empty: got %t, want %t", parts, got, want)
		}
	}
}

// The record names the kinds of change that a grace period has held back, and no others.
func TestKindsOfChangeAfterAGracePeriod(t *testing.T) {
	for held, want := range map[string][3]bool{
		`"containerImages":{"nginx":"nginx:2"}`:                      {true, false, false},
		`"containerResources":{"nginx":{"limits":{"cpu":"2"}}}`:      {false, true, false},
		`"containerRefMetadata":{"nginx":{"annotations":{"a":"b"}}}`: {false, false, true},
	} {
		pod := webPod(annotated(pub.InPlaceUpdateGrace, `{"revision":"web-1","graceSeconds":1,`+held+`}`))
		patch, err := Continue(pod, noon)
		if err != nil {
			t.Fatal(err)
		}
		state, err := StateOf(applied(t, pod, patch))
		if err != nil {
			t.Fatal(err)
		}
		if got := [3]bool{state.UpdateImages, state.UpdateResources, state.UpdateEnvFromMetadata}; got != want {
			t.Errorf("%s: images, resources, environment in the record: got %v, want %v", held, got, want)
		}
	}
}

// IPU-068 (part): a grace period keeps all metadata of a change, of every kind and any number.
func TestAGracePeriodKeepsEveryKindOfMetadata(t *testing.T) {
	value := "2"
	kinds := map[string]func(*Change){
		"a label":       func(c *Change) { c.Labels = map[string]*string{"l": &value} },
		"an annotation": func(c *Change) { c.Annotations = map[string]*string{"a": nil} },
		"a finalizer":   func(c *Change) { c.AddFinalizers = []string{"x/f"} },
		"no finalizer":  func(c *Change) { c.RemoveFinalizers = []string{"x/g"} },
	}
	for first, one := range kinds {
		for second, other := range kinds {
			change := &Change{}
			one(change)
			other(change)
			encoded, err := encodeMetadata(change)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := decodeMetadata(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(change, kept); diff != "" {
				t.Errorf("%s with %s: the change that is kept (-want +got):\n%s", first, second, diff)
			}
		}
	}
	if encoded, err := encodeMetadata(&Change{}); err != nil {
		t.Errorf("encoding no metadata: %v", err)
	} else if encoded != nil {
		t.Errorf("no metadata is kept as %q, want as nothing", encoded)
	}
}

// IPU-322 (part), IPU-312 (part): a restart is asked for only if the container runs: one that does not run
// yet will start with the new content anyway. The same holds for a container that reads metadata.
func TestOnlyWhatRunsIsRestarted(t *testing.T) {
	value := "2"
	refs := map[string]RefMetadata{"nginx": {Labels: map[string]*string{"app": &value}}}
	for name, tt := range map[string]struct {
		status func(*corev1.Pod)
		want   map[string]string
	}{
		"it runs":       {func(*corev1.Pod) {}, map[string]string{"nginx": "c-1"}},
		"no status":     {func(pod *corev1.Pod) { pod.Status.ContainerStatuses = pod.Status.ContainerStatuses[:1] }, nil},
		"no ID as yet":  {func(pod *corev1.Pod) { pod.Status.ContainerStatuses[1].ContainerID = "" }, nil},
		"another's one": {func(pod *corev1.Pod) { pod.Status.ContainerStatuses[1].Name = "other" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			restart, reads := webPod(tt.status), webPod(tt.status)
			restart.Spec.Containers = restart.Spec.Containers[:1]
			patch, err := to("web-2", &Change{Parts: Parts{Restarts: []string{"nginx"}}, Stops: []string{"nginx"}}, 0).Start(restart, noon)
			if err != nil {
				t.Fatal(err)
			}
			state, err := StateOf(applied(t, restart, patch))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, state.RestartContainers); diff != "" {
				t.Error("to restart: ", diff)
			}
			if patch, err = to("web-2", &Change{Parts: Parts{Refs: refs}, Stops: []string{"nginx"}}, 0).Start(reads, noon); err != nil {
				t.Fatal(err)
			}
			if state, err = StateOf(applied(t, reads, patch)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, state.EnvContainers); diff != "" {
				t.Error("to give another environment: ", diff)
			}
		})
	}
}

// IPU-328 (part): the record of what a container ran when its image is replaced again, before and after the
// former replacement has come up.
func TestWhatRanWhenAnImageIsReplacedAgain(t *testing.T) {
	former := ContainerRecord{ContainerID: "c-1", ImageID: "sha-1", Image: "nginx:1", RunningImage: "nginx:1"}
	record := func(asked string, runs corev1.ContainerStatus, former ContainerRecord) ContainerRecord {
		return Record(&corev1.Container{Name: "nginx", Image: asked}, &runs, former)
	}
	for name, tt := range map[string]struct {
		got, want ContainerRecord
	}{
		"the former one has come up": {record("nginx:2", runs("nginx", "nginx:2", "sha-2", "c-2", noon), former),
			ContainerRecord{ContainerID: "c-2", ImageID: "sha-2", Image: "nginx:2", RunningImage: "nginx:2"}},
		"it has not, and the runtime names the first one otherwise": {record("nginx:2", runs("nginx", "mirror/web:x", "sha-1", "c-1", noon),
			former),
			ContainerRecord{ContainerID: "c-1", ImageID: "sha-1", Image: "nginx:2", RunningImage: "nginx:1"}},
		"one that was overtaken has come up": {record("nginx:3", runs("nginx", "nginx:2", "sha-2", "c-2", noon),
			ContainerRecord{ContainerID: "c-1", ImageID: "sha-1", Image: "nginx:2.5", RunningImage: "nginx:1",
				Overtaken: []string{"nginx:2"}}),
			ContainerRecord{ContainerID: "c-2", ImageID: "sha-2", Image: "nginx:3", RunningImage: "nginx:2",
				Overtaken: []string{"nginx:2.5"}}},
	} {
		if diff := cmp.Diff(tt.want, tt.got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: the record of what ran (-want +got):\n%s", name, diff)
		}
	}
}

// IPU-326 (part): the record of mended containers counts for the revision at which they were mended, and for
// no other.
func TestWhatWasMended(t *testing.T) {
	const state = `{"revision":"web-1","updateTimestamp":"` + noonText +
		`","lastContainerStatuses":{},"mended":["nginx"],"mendedResources":["injected"]}`
	for name, tt := range map[string]struct {
		state, revision, container string
		image, resources           bool
	}{
		"its image":          {state, "web-1", "nginx", true, false},
		"its quantities":     {state, "web-1", "injected", false, true},
		"a long name":        {state, "set-web-1", "nginx", true, false},
		"another revision":   {state, "web-2", "nginx", false, false},
		"another container":  {state, "web-1", "other", false, false},
		"an unreadable one":  {"{", "web-1", "nginx", false, false},
		"no update in place": {"", "web-1", "nginx", false, false},
	} {
		pod := webPod()
		if tt.state != "" {
			pod = webPod(annotated(pub.InPlaceUpdateState, tt.state))
		}
		images, resources := Mended(pod, tt.revision)
		if got := images.Has(tt.container); got != tt.image {
			t.Errorf("%s: the image of %s is mended: got %t, want %t", name, tt.container, got, tt.image)
		}
		if got := resources.Has(tt.container); got != tt.resources {
			t.Errorf("%s: the quantities of %s are mended: got %t, want %t",
				name, tt.container, got, tt.resources)
		}
	}
}

// IPU-312 (part): containers count as unrestartable once the pod has run for 30 seconds and no daemon has
// reported it.
func TestWhoCannotBeRestarted(t *testing.T) {
	change := &Change{Parts: Parts{Restarts: []string{"nginx"}}}
	started := func(age time.Duration) *corev1.Pod {
		return webPod(func(pod *corev1.Pod) {
			for i := range pod.Status.ContainerStatuses {
				pod.Status.ContainerStatuses[i].State.Running = nil
			}
			pod.Status.ContainerStatuses[1].State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-age))}
		})
	}
	told := started(time.Hour)
	told.Annotations[pub.RuntimeContainersMeta] = "{}"
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"for long":  {started(DaemonPatience + time.Second), []string{"nginx"}},
		"just 30 s": {started(DaemonPatience), nil},
		"told of":   {told, nil},
		"none runs": {webPod(func(pod *corev1.Pod) { pod.Status.ContainerStatuses = nil }), nil},
		"a new one": {started(0), nil},
		"a new one on a node whose clock is behind": {func() *corev1.Pod {
			pod := started(time.Hour)
			pod.CreationTimestamp = metav1.NewTime(noon.Add(-10 * time.Second))
			return pod
		}(), nil},
		"both, long": {webPod(), []string{"nginx"}},
	} {
		if got := change.Unrestartable(tt.pod, noon); !slices.Equal(got, tt.want) {
			t.Errorf("%s: containers that cannot be restarted: got %v, want %v", name, got, tt.want)
		}
	}
}

// IPU-308 (part), IPU-080 (part): a change of annotations alone is quiet, one of labels or containers is not.
// IPU-326 (part): With leaves a change as it is if there is nothing to mend.
func TestAQuietChange(t *testing.T) {
	value := "2"
	for name, tt := range map[string]struct {
		change Change
		quiet  bool
	}{
		"annotations": {Change{Annotations: map[string]*string{"a": &value}}, true},
		"labels":      {Change{Labels: map[string]*string{"a": &value}}, false},
		"an image":    {*toImage("nginx:2"), false},
	} {
		if tt.change.Quiet() != tt.quiet {
			t.Errorf("%s: the change is quiet: got %t, want %t", name, !tt.quiet, tt.quiet)
		}
	}
	change := toImage("nginx:2")
	if change.With(&corev1.Pod{}, nil, nil) != change {
		t.Error("nothing is written again, and yet the change is another one")
	}
	more := change.With(&corev1.Pod{}, map[string]string{"injected": "proxy:1"},
		map[string]corev1.ResourceRequirements{"nginx": {Limits: quantities("cpu", "1")}})
	if diff := cmp.Diff([]string{"injected", "nginx"}, more.Stops); diff != "" {
		t.Errorf("containers that the change stops (-want +got):\n%s", diff)
	}
	if image := more.Images["nginx"]; image != "nginx:2" {
		t.Errorf("image that the change gives nginx: got %s, want nginx:2", image)
	}
	if len(more.Mends) != 1 {
		t.Errorf("containers whose image is mended: got %v, want 1", more.Mends)
	}
	if len(more.MendsResources) != 1 {
		t.Errorf("containers whose quantities are mended: got %v, want 1", more.MendsResources)
	}
}
