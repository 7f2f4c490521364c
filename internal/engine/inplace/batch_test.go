package inplace

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podpatch"
)

// barrier is the environment variable that gives a container the launch priority in the key.
func barrier(key string) corev1.EnvVar {
	return corev1.EnvVar{Name: pub.ContainerBarrierEnv, ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "p-barrier"}, Key: key}}}
}

// IPU-100: the priority is the integer behind p_ in the key that the barrier's variable reads; a container
// without that variable has none. TestLaunch in internal/admission/pod shows which pods get the variable.
func TestLaunchPriority(t *testing.T) {
	other := barrier("p_7")
	other.Name = "MINE"
	for name, test := range map[string]struct {
		env      []corev1.EnvVar
		priority int
		has      bool
	}{
		"no environment":   {nil, 0, false},
		"another variable": {[]corev1.EnvVar{other, {Name: "X", Value: "p_7"}}, 0, false},
		"a literal value":  {[]corev1.EnvVar{{Name: pub.ContainerBarrierEnv, Value: "p_7"}}, 0, false},
		"another source": {
			[]corev1.EnvVar{{Name: pub.ContainerBarrierEnv,
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "p_7"}}}}, 0, false},
		"the key of something else": {[]corev1.EnvVar{barrier("q_7")}, 0, false},
		"no integer":                {[]corev1.EnvVar{barrier("p_x")}, 0, false},
		"a priority":                {[]corev1.EnvVar{{Name: "X", Value: "1"}, barrier("p_7")}, 7, true},
		"none is not 0":             {[]corev1.EnvVar{barrier("p_0")}, 0, true},
		"below 0":                   {[]corev1.EnvVar{barrier("p_-3")}, -3, true},
		"a large one":               {[]corev1.EnvVar{barrier("p_2147483647")}, 2147483647, true},
	} {
		priority, has := launchPriority(&corev1.Container{Env: test.env})
		if has != test.has {
			t.Errorf("%s: has a launch priority: got %t, want %t", name, has, test.has)
		}
		if priority != test.priority {
			t.Errorf("%s: launch priority %d, want %d", name, priority, test.priority)
		}
	}
}

// IPU-065, IPU-101, IPU-104, IPU-303: whatever a container has to change, those without priority and those of
// the highest one go first, together, and what is left is in the members of the state for later batches; each
// of these is chosen from what is left in the same way, until all is written.
func TestBatchesOfAllKindsOfChange(t *testing.T) {
	keys := map[string]string{"free": "", "bare": "", "top": "p_10", "peak": "p_10", "mid": "p_5", "centre": "p_5", "low": "p_-1"}
	value := "2"
	kinds := map[string]func(*Parts, string){
		"image": func(p *Parts, name string) { p.Images[name] = name + ":2" },
		"metadata": func(p *Parts, name string) {
			if p.Refs[name] = (RefMetadata{Annotations: map[string]*string{"of-" + name: &value}}); name == "mid" {
				p.Refs[name] = RefMetadata{Labels: map[string]*string{"of-" + name: &value}}
			}
		},
		"resources": func(p *Parts, name string) {
			p.Resources[name] = corev1.ResourceRequirements{Limits: quantities("cpu", "2")}
		},
	}
	for name, kind := range maps.Clone(kinds) {
		kinds[name+" of one, images of others"] = func(p *Parts, container string) {
			if container == "top" || container == "mid" {
				kind(p, container)
			} else {
				p.Images[container] = container + ":2"
			}
		}
	}
	for name, kind := range kinds {
		for _, test := range []struct{ changed, batches []string }{
			{[]string{"free", "top", "mid", "low"}, []string{"free top", "mid", "low"}},
			{[]string{"peak", "bare", "top", "centre", "free", "mid", "low"}, []string{"bare free peak top", "centre mid", "low"}},
			{[]string{"mid", "centre"}, []string{"centre mid"}},
			{[]string{"low", "mid"}, []string{"mid", "low"}}, // containers with a higher priority have nothing to change
			{[]string{"free", "bare"}, []string{"bare free"}},
			{[]string{"low", "free"}, []string{"free low"}},
		} {
			pod := webPod()
			pod.Spec.Containers, pod.Status.ContainerStatuses = nil, nil
			for _, container := range slices.Sorted(maps.Keys(keys)) {
				c := corev1.Container{Name: container, Image: container + ":1"}
				if keys[container] != "" {
					c.Env = []corev1.EnvVar{barrier(keys[container])}
				}
				pod.Spec.Containers = append(pod.Spec.Containers, c)
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses,
					runs(container, c.Image, "sha-1", "c-"+container, noon.Add(-time.Hour)))
			}
			parts := Parts{Images: map[string]string{}, Refs: map[string]RefMetadata{}, Resources: map[string]corev1.ResourceRequirements{}}
			for _, container := range test.changed {
				kind(&parts, container)
			}
			update := to("web-2", &Change{Parts: parts}, 0)
			write := func(steps ...func(*corev1.Pod, time.Time) (*podpatch.Patch, error)) {
				t.Helper()
				for _, step := range steps {
					patch, err := step(pod, noon)
					if err != nil {
						t.Fatal(err)
					}
					pod = applied(t, pod, patch)
				}
			}
			write(update.Resize, update.Start)
			var written [][]string
			left := parts.Names()
			for round := range 10 {
				state, err := StateOf(pod)
				if err != nil {
					t.Fatal(err)
				}
				next := state.remaining()
				batch := slices.DeleteFunc(slices.Clone(left),
					func(container string) bool { return slices.Contains(next.Names(), container) })
				written, left = append(written, batch), next.Names()
				check := state.PreCheckBeforeNext
				if (check == nil) != (len(left) == 0) {
					t.Errorf("%s of %v, batch %d: check before the next %+v, with %v left",
						name, test.changed, round, check, left)
				} else if check != nil && !slices.Equal(check.ContainersRequiredReady, batch) {
					t.Errorf("%s of %v, batch %d: the next waits for %v, want %v", name, test.changed, round,
						check.ContainersRequiredReady, batch)
				}
				// What later batches have to write stands under the member of its kind and is not written
				// yet; the rest is written.
				kept := parts.only(func(container string) bool { return slices.Contains(left, container) })
				var members map[string]json.RawMessage
				if err := json.Unmarshal([]byte(pod.Annotations[pub.InPlaceUpdateState]), &members); err != nil {
					t.Fatal(err)
				}
				for member, kind := range map[string]any{"nextContainerImages": kept.Images, "nextContainerRefMetadata": kept.Refs,
					"nextContainerResources": kept.Resources} {
					want, _ := json.Marshal(kind)
					empty := string(want) == "{}" || string(want) == "null"
					got, there := members[member]
					if there == empty {
						t.Errorf("%s of %v, batch %d: has %s: got %t, want %t",
							name, test.changed, round, member, there, !empty)
					}
					if !empty && string(got) != string(want) {
						t.Errorf("%s of %v, batch %d: %s is %s, want %s", name, test.changed, round, member, got, want)
					}
				}
				for i := range pod.Spec.Containers {
					container := &pod.Spec.Containers[i]
					waits := slices.Contains(left, container.Name)
					if _, changes := parts.Images[container.Name]; changes && (container.Image == container.Name+":1") != waits {
						t.Errorf("%s of %v, batch %d: %s has image %s, want it to wait: %t",
							name, test.changed, round, container.Name, container.Image, waits)
					}
					if _, changes := parts.Refs[container.Name]; changes &&
						(pod.Annotations["of-"+container.Name]+pod.Labels["of-"+container.Name] == "") != waits {
						t.Errorf("%s of %v, batch %d: labels %v, annotations %v, want them to wait: %t",
							name, test.changed, round, pod.Labels, pod.Annotations, waits)
					}
					if _, changes := parts.Resources[container.Name]; changes &&
						(container.Resources.Limits.Cpu().String() != "2") != waits {
						t.Errorf("%s of %v, batch %d: %s has resources %v, want them to wait: %t",
							name, test.changed, round, container.Name, container.Resources, waits)
					}
				}
				if len(left) == 0 {
					break
				}
				for i := range pod.Status.ContainerStatuses { // kubelet and the node daemon carry out all that was written
					status := &pod.Status.ContainerStatuses[i]
					image := containerOf(pod, status.Name).Image
					*status = runs(status.Name, image, "sha-"+image, status.ContainerID+"'", noon.Add(time.Minute))
					status.Ready = true
				}
				write(ContinueResize, Continue)
			}
			var want, got [][]string
			for _, batch := range test.batches {
				want = append(want, strings.Fields(batch))
			}
			for _, batch := range written {
				got = append(got, slices.Sorted(slices.Values(batch)))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s of %v: containers of each batch (-want +got):\n%s", name, test.changed, diff)
			}
		}
	}
}

// prioritized is a pod of three containers: main without launch priority, agent and proxy with 10 and 5, each
// reading annotations.
func prioritized() *corev1.Pod {
	env := func(priority string, keys ...string) []corev1.EnvVar {
		var envs []corev1.EnvVar
		if priority != "" {
			envs = append(envs, corev1.EnvVar{Name: pub.ContainerBarrierEnv, ValueFrom: &corev1.EnvVarSource{
				ConfigMapKeyRef: &corev1.ConfigMapKeySelector{Key: "p_" + priority}}})
		}
		for _, key := range keys {
			envs = append(envs, corev1.EnvVar{Name: "E_" + key, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['" + key + "']"}}})
		}
		return envs
	}
	pod := webPod()
	pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "main:1", Env: env("0", "x")},
		{Name: "agent", Image: "agent:1", Env: env("10", "y")},
		{Name: "proxy", Image: "proxy:1", Env: env("5", "x")}}
	long := noon.Add(-time.Hour)
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{runs("agent", "agent:1", "sha-a", "c-a", long),
		runs("main", "main:1", "sha-m", "c-m", long),
		runs("proxy", "proxy:1", "sha-p", "c-p", long)}
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].Ready = true
	}
	return pod
}

// kubelet plays the kubelet: it replaces the containers whose image differs from what they run.
func kubelet(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if c := containerOf(pod, status.Name); c.Image != status.Image {
			*status = runs(c.Name, c.Image, "sha-"+c.Image, status.ContainerID+"'", noon.Add(time.Minute))
			status.Ready = true
		}
	}
	return pod
}

// TestUpdatesGoInBatchesByLaunchPriority plays an update in batches by launch priority (IPU-060,
// IPU-065 (part), IPU-066, IPU-067, IPU-103 (part), IPU-104, IPU-217 (part), IPU-302 (part)).
func TestUpdatesGoInBatchesByLaunchPriority(t *testing.T) {
	change := &Change{Parts: Parts{Images: map[string]string{"main": "main:2", "agent": "agent:2", "proxy": "proxy:2"}},
		Stops: []string{"agent", "main", "proxy"}}
	pod := prioritized()
	patch, err := to("web-2", change, 0).Start(pod, noon)
	if err != nil {
		t.Fatal(err)
	}
	pod = applied(t, pod, patch)
	state := func() *State {
		t.Helper()
		s, err := StateOf(pod)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	images := func(want ...string) {
		t.Helper()
		var got []string
		for _, c := range pod.Spec.Containers {
			got = append(got, c.Image)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("images of the pod (-want +got):\n%s", diff)
		}
	}
	images("main:1", "agent:2", "proxy:1")
	if diff := cmp.Diff(map[string]string{"main": "main:2", "proxy": "proxy:2"}, state().NextContainerImages); diff != "" {
		t.Fatalf("images of later batches (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&PreCheck{ContainersRequiredReady: []string{"agent"}}, state().PreCheckBeforeNext); diff != "" {
		t.Fatalf("check before the next batch (-want +got):\n%s", diff)
	}
	status, _ := Progress(pod, noon)
	if status.Next {
		t.Fatalf("the next batch is due before agent runs agent:2: %+v", status)
	}
	if status.Complete {
		t.Fatalf("the update is complete before agent runs agent:2: %+v", status)
	}
	if want := "container agent does not run agent:2 yet"; status.Waiting != want {
		t.Fatalf("the update waits: got %q, want %q", status.Waiting, want)
	}
	pod = kubelet(pod)
	statusOf(pod, "agent").Ready = false
	status, _ = Progress(pod, noon)
	if status.Next {
		t.Fatalf("the next batch is due before agent is ready: %+v", status)
	}
	if want := "container agent must be ready before the next batch"; status.Waiting != want {
		t.Fatalf("the update waits: got %q, want %q", status.Waiting, want)
	}
	statusOf(pod, "agent").Ready = true
	for _, want := range [][]string{{"main:1", "agent:2", "proxy:2"}, {"main:2", "agent:2", "proxy:2"}} {
		status, _ := Progress(pod, noon)
		if !status.Next {
			t.Fatalf("the batch that writes %v is not due: %+v", want, status)
		}
		if status.Complete {
			t.Fatalf("the update is complete before the batch that writes %v: %+v", want, status)
		}
		if patch, err = Continue(pod, noon); err != nil {
			t.Fatal(err)
		}
		pod = applied(t, pod, patch)
		images(want...)
		pod = kubelet(pod)
	}
	if status, _ := Progress(pod, noon); !status.Complete {
		t.Fatalf("the update is not complete after all batches: %+v", status)
	}
	if check := state().PreCheckBeforeNext; check != nil {
		t.Fatalf("check before the next batch after the last: got %+v, want none", check)
	}
	if n := len(state().ContainerBatchesRecord); n != 3 {
		t.Fatalf("batches in the record: got %d, want 3", n)
	}
	if diff := cmp.Diff(`{"agent":1,"main":1,"proxy":1}`, pod.Annotations[pub.InPlaceUpdateRestarts]); diff != "" { // IPU-320
		t.Errorf("restarts by updates (-want +got):\n%s", diff)
	}
}

// TestFurtherRevisionKeepsBatches: what an interrupted update had not written yet, the next update writes
// (IPU-327).
func TestFurtherRevisionKeepsBatches(t *testing.T) {
	pod := prioritized()
	apply := func(u *Update) {
		t.Helper()
		patch, err := u.Start(pod, noon)
		if err != nil {
			t.Fatal(err)
		}
		pod = applied(t, pod, patch)
	}
	cpu := corev1.ResourceRequirements{Limits: quantities("cpu", "2")}
	value, other := "v", "w"
	apply(to("web-2",
		&Change{Parts: Parts{Images: map[string]string{"main": "main:2", "agent": "agent:2"},
			Resources: map[string]corev1.ResourceRequirements{"main": cpu},
			Refs:      map[string]RefMetadata{"main": {Annotations: map[string]*string{"x": &value}}}, Restarts: []string{"proxy"}}}, 0))
	apply(to("web-3",
		&Change{Parts: Parts{Images: map[string]string{"agent": "agent:3"},
			Refs: map[string]RefMetadata{"main": {Labels: map[string]*string{"l": &other}}}}}, 0))
	state, err := StateOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	left := state.remaining()
	if diff := cmp.Diff(Parts{Images: map[string]string{"main": "main:2"}, Resources: map[string]corev1.ResourceRequirements{"main": cpu},
		Refs:     map[string]RefMetadata{"main": {Annotations: map[string]*string{"x": &value}, Labels: map[string]*string{"l": &other}}},
		Restarts: []string{"proxy"}}, left); diff != "" {
		t.Errorf("what is left for later batches (-want +got):\n%s", diff)
	}
	if got := pod.Spec.Containers[1].Image; got != "agent:3" {
		t.Errorf("image of agent: got %s, want agent:3", got)
	}
}

// TestSplitSharedMetadata: a container that reads the same metadata as one of the batch joins the batch
// (IPU-102).
func TestSplitSharedMetadata(t *testing.T) {
	value := "v"
	reads := func(keys ...string) RefMetadata {
		refs := RefMetadata{Annotations: map[string]*string{}}
		for _, key := range keys {
			refs.Annotations[key] = &value
		}
		return refs
	}
	tests := map[string]struct {
		refs       map[string]RefMetadata
		now, later []string
	}{
		"by priority": {map[string]RefMetadata{"agent": reads("y"), "main": reads("x"), "proxy": reads("z")}, []string{"agent"},
			[]string{"main", "proxy"}},
		"shared": {map[string]RefMetadata{"agent": reads("y"), "main": reads("y"), "proxy": reads("z")},
			[]string{"agent", "main"}, []string{"proxy"}},
		"shared through": {map[string]RefMetadata{"agent": reads("y"), "main": reads("y", "x"), "proxy": reads("x")},
			[]string{"agent", "main", "proxy"}, nil},
		"the highest there": {map[string]RefMetadata{"main": reads("x"), "proxy": reads("z")}, []string{"proxy"}, []string{"main"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			now, later := split(prioritized(), Parts{Refs: tt.refs}, nil)
			if diff := cmp.Diff(tt.now, now.Names()); diff != "" {
				t.Errorf("containers of this batch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.later, later.Names()); diff != "" {
				t.Errorf("containers of later batches (-want +got):\n%s", diff)
			}
		})
	}
}
