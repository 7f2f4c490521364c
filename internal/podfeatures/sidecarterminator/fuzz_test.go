package sidecarterminator

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/fuzzing"
	given "github.com/afloat-project/afloat/internal/podfeatures/sidecarterminator/sidecarterminatortest"
)

// marked reports whether a container has one of the variables, with a value that counts. It is written in
// another way than what it checks: by hand, for plain values.
func marked(c *corev1.Container, variables ...string) bool {
	last := map[string]string{}
	for _, env := range c.Env {
		if env.ValueFrom == nil {
			last[env.Name] = env.Value
		}
	}
	return slices.ContainsFunc(variables, func(name string) bool {
		return name == image && last[name] != "" || strings.EqualFold(last[name], "true")
	})
}

// FuzzPlan: whatever is in a pod and in the requests for it, something is done only when all main containers
// have ended, and only to sidecars: they are stopped or get their image, and only those whose exit code is
// ignored are left to kubelet. What was done is not done again at the same time, and every plan about a pod
// that has not ended says why.
func FuzzPlan(f *testing.F) {
	main := given.With("main", given.Ended(0))
	for _, snapshot := range []Snapshot{
		{Pod: given.Pod(main, given.Sidecar("s", given.Running(1)), given.Ignored("i", given.Running(0))), Node: Normal,
			Requests: []*appsv1beta1.ContainerRecreateRequest{given.Completed(given.Request(prefix+"u", "s"), restart.MessageNoAnswer)}},
		{Pod: given.Pod(main, given.Ignored("i", given.Running(0))), Node: Normal},
		{Pod: given.Pod(given.With("main", given.Ended(3)), given.ByImage("m", given.Running(0)), given.Policy(corev1.RestartPolicyOnFailure)), Node: Virtual},
		{Pod: given.Pod(main, given.Ignored("i", given.Running(0)), given.Phase(corev1.PodFailed, given.Noon.Add(-time.Hour))), Node: Normal,
			Requests: []*appsv1beta1.ContainerRecreateRequest{given.Request(prefix+"u-ignore-99", "i")}},
	} {
		snapshot.Now, snapshot.Ended = given.Noon, map[types.UID]time.Time{"uid of " + prefix + "u": given.Noon.Add(-time.Minute)}
		f.Add(fuzzing.JSON(snapshot), []byte{})
		f.Add(fuzzing.JSON(snapshot), []byte("\x03\x01\x02\x01\x00\x02"))
		f.Add(fuzzing.JSON(snapshot), []byte("other variables of a container"))
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte) {
		text = fuzzing.Edit(text, changes, "env", "name", "value", "valueFrom", "restartPolicy", "containerStatuses", "terminated", "running",
			"exitCode", "phase", "conditions", "containers", "completionTime", stop, ignoring, image, "lastTransitionTime", "terminationGracePeriodSeconds")
		var s Snapshot
		if json.Unmarshal([]byte(text), &s) != nil || s.Pod == nil || slices.Contains(s.Requests, nil) {
			return
		}
		s.Pod.UID, s.Pod.Name, s.Now = "u", "p", given.Noon // the API server makes UIDs
		if c := aheadOf(s.Pod); c != nil && c.LastTransitionTime.After(s.Now) {
			return // a manager whose clock is ahead wrote it: that time is waited for
		}
		before := fuzzing.JSON(s)
		plan := NewPlan(s)
		if after := fuzzing.JSON(s); after != before {
			t.Errorf("what was looked at changed from %s to %s", before, after)
		}
		if plan.Why == "" && !finished(s.Pod) || plan.After < 0 || plan.After > 25*time.Hour || !plan.Idle() && (!Concerns(s.Pod) || !Marked(s.Pod)) {
			t.Errorf("%s has the plan %q, again in %s", text, plan.Why, plan.After)
		}

		status := func(name string) *corev1.ContainerStatus {
			for i := len(s.Pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
				if c := &s.Pod.Status.ContainerStatuses[i]; c.Name == name {
					return c
				}
			}
			return &corev1.ContainerStatus{}
		}
		may := map[string]*corev1.Container{}
		for i := range s.Pod.Spec.Containers {
			c := &s.Pod.Spec.Containers[i]
			if marked(c, stop, image) {
				may[c.Name] = c
			} else if status(c.Name).State.Terminated == nil && !plan.Idle() {
				t.Errorf("%s: container %s has not ended, and the plan is %q", text, c.Name, plan.Why)
			}
		}
		for _, name := range append(slices.Clone(plan.Replaced), plan.Freed...) {
			if may[name] == nil || slices.Contains(plan.Freed, name) && !marked(may[name], ignoring) {
				t.Errorf("%s: container %s is no sidecar, and the plan is %q", text, name, plan.Why)
			}
		}
		if request := plan.Request; request != nil {
			if PodUID(request.Name) != s.Pod.UID || OwnerOf(request) != s.Pod.Name || len(request.Spec.Containers) == 0 ||
				slices.ContainsFunc(s.Requests, func(r *appsv1beta1.ContainerRecreateRequest) bool { return r.Name == request.Name }) {
				t.Errorf("%s: a request %s is made", text, fuzzing.JSON(request))
			}
			for _, c := range request.Spec.Containers {
				if may[c.Name] == nil || status(c.Name).State.Running == nil {
					t.Errorf("%s: container %s is stopped", text, c.Name)
				}
			}
		}
		if plan.Idle() {
			return
		}

		for _, patch := range []interface {
			Empty() bool
			JSON(*corev1.Pod) ([]byte, error)
		}{plan.Images, plan.Status} {
			if patch.Empty() {
				continue
			}
			body, err := patch.JSON(s.Pod)
			if err != nil {
				t.Fatalf("the patch of %s cannot be written: %v", text, err)
			}
			made, err := strategicpatch.StrategicMergePatch([]byte(fuzzing.JSON(s.Pod)), body, corev1.Pod{})
			if err != nil {
				t.Fatalf("%s does not apply to %s: %v", body, fuzzing.JSON(s.Pod), err)
			}
			s.Pod = &corev1.Pod{}
			if err := json.Unmarshal(made, s.Pod); err != nil {
				t.Fatalf("%s makes no pod: %v", body, err)
			}
		}
		if plan.Request != nil {
			request := plan.Request.DeepCopy()
			request.Labels = map[string]string{pub.RecreatePodUID: string(s.Pod.UID)} // by its webhook
			s.Requests = append(s.Requests, request)
		}
		if again := NewPlan(s); !again.Idle() {
			t.Errorf("%s: the plan %q is followed at once by %q", text, plan.Why, again.Why)
		}
	})
}

// FuzzAttempt: a name of a request that can be read is written as it was read, and its number has a bound, so
// that a pod has few requests.
func FuzzAttempt(f *testing.F) {
	for _, name := range []string{prefix + "u", prefix + "u-ignore", prefix + "u-2", prefix + "u-ignore-99", prefix, prefix + "u-100", prefix + "u-1", prefix + "-ignore-5", "other"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		a, ok := attemptOf(name)
		if ok && (a.name() != name || a.number < 1 || a.number > last || a.pod == "") || !ok && PodUID(name) != "" {
			t.Errorf("%q is %+v, %t", name, a, ok)
		}
	})
}
