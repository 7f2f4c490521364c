package containerrecreate

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/restart"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
)

func heldPod(p *corev1.Pod) {
	p.Status.Conditions[2] = corev1.PodCondition{Type: pub.KruisePodReady, Status: "False",
		Message: `[{"userAgent":"ContainerRecreateRequest","key":"shop/restart"}]`}
}

// writes shows what a plan writes.
type writes struct {
	Finalizer, Pod, Released, Status, Delete, Ended string
}

func shown(t *testing.T, p *Plan) writes {
	t.Helper()
	w := writes{Ended: string(p.Ended)}
	if p.AddFinalizer {
		w.Finalizer = "add"
	}
	if p.RemoveFinalizer {
		w.Finalizer = "remove"
	}
	if !p.Pod.Empty() {
		w.Pod = p.Pod.String()
	}
	if p.RemoveActive {
		w.Released = "active"
	}
	if p.Delete {
		w.Delete = "delete"
	}
	if p.Status != nil {
		data, err := json.Marshal(p.Status)
		if err != nil {
			t.Fatal(err)
		}
		w.Status = string(data)
	}
	return w
}

func abandoned(why string) string {
	return `{"completionTime":"2026-01-01T12:00:10Z","containerRecreateStates":[{"name":"app","phase":"Failed","message":"` + why +
		`"},{"name":"proxy","phase":"Failed","message":"` + why + `"}],"message":"` + why + `","phase":"Completed"}`
}

const condition = `"conditions":[{"type":"PreRecreateGrace","status":"True","lastTransitionTime":"2026-01-01T12:00:10Z","reason":"PreRecreateGrace","message":"`

func TestPlan(t *testing.T) {
	request := containerrecreatetest.Request
	cases := map[string]struct {
		request *appsv1beta1.ContainerRecreateRequest
		pod     *corev1.Pod
		at      time.Duration // after noon; 0 is 10 s
		want    writes
		after   time.Duration
	}{
		"CRR-056 deleted: nothing held, nothing to do": {request(func(r *appsv1beta1.ContainerRecreateRequest) {
			r.DeletionTimestamp = &metav1.Time{Time: containerrecreatetest.Noon}
		}), nil, 0, writes{}, 0},
		"CRR-083, CRR-140 deleted while the pod is held": {request(containerrecreatetest.Held,
			func(r *appsv1beta1.ContainerRecreateRequest) {
				r.DeletionTimestamp = &metav1.Time{Time: containerrecreatetest.Noon}
			}), containerrecreatetest.Pod(heldPod), 0,
			writes{Finalizer: "remove", Pod: "KruisePodReady=True"}, 0},
		"CRR-083 a pod that is gone does not block the finalizer": {request(containerrecreatetest.Held, containerrecreatetest.Done), nil, 0,
			writes{Finalizer: "remove",
				Released: "active", Ended: "Failed"}, 0},
		"CRR-083 a pod being deleted is left alone": {request(containerrecreatetest.Held, containerrecreatetest.Done),
			containerrecreatetest.Pod(heldPod,
				func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: containerrecreatetest.Noon} }), 0,
			writes{Finalizer: "remove", Released: "active", Ended: "Failed"}, 0},
		"CRR-083 another pod of that name is left alone": {request(containerrecreatetest.Held, containerrecreatetest.Done),
			containerrecreatetest.Pod(heldPod, func(p *corev1.Pod) { p.UID = "pod-2" }), 0,
			writes{Finalizer: "remove", Released: "active", Ended: "Failed"}, 0},
		"CRR-057 completed: out of the daemons' watch": {request(containerrecreatetest.Done, containerrecreatetest.Succeeded), nil, 0,
			writes{Released: "active", Ended: "Succeeded"},
			0},
		"completed and out of the watch: rest": {request(containerrecreatetest.Done, idle), nil, 0, writes{}, 0},
		"CRR-058 completed, the TTL runs": {request(containerrecreatetest.Done, idle,
			func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.TTLSecondsAfterFinished = new(int32(600)) }), nil, 0,
			writes{}, 590 * time.Second},
		"CRR-058 completed, the TTL is over": {request(containerrecreatetest.Done, idle,
			func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.TTLSecondsAfterFinished = new(int32(0)) }), nil, 0,
			writes{Delete: "delete"}, 0},
		"CRR-059, CRR-065, CRR-066 no pod": {request(), nil, 0, writes{Status: abandoned("pod has gone")}, 0},
		"CRR-059 a pod being deleted": {request(), containerrecreatetest.Pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: containerrecreatetest.Noon} }), 0,
			writes{Status: abandoned("pod has gone")}, 0},
		"CRR-059 another pod": {request(), containerrecreatetest.Pod(func(p *corev1.Pod) { p.UID = "pod-2" }), 0,
			writes{Status: abandoned("pod has gone")}, 0},
		"CRR-060 no answer yet": {request(containerrecreatetest.Phase("")), containerrecreatetest.Pod(), 0, writes{}, 50 * time.Second},
		"CRR-060 no answer for a minute": {request(containerrecreatetest.Phase("")), containerrecreatetest.Pod(), time.Minute,
			writes{Status: strings.ReplaceAll(abandoned("daemon has not responded for a long time"), "12:00:10", "12:01:00")}, 0},
		"CRR-061 the deadline counts from creation, queued or not": {request(containerrecreatetest.Phase("Pending"),
			containerrecreatetest.Deadline), containerrecreatetest.Pod(), 0, writes{},
			290 * time.Second},
		"CRR-061, CRR-141, CRR-162 the deadline is over": {request(containerrecreatetest.Phase("Pending"), containerrecreatetest.Deadline),
			containerrecreatetest.Pod(), 300 * time.Second,
			writes{Status: strings.ReplaceAll(abandoned("recreating has exceeded the activeDeadlineSeconds"), "12:00:10", "12:05:00")}, 0},
		"CRR-062 the earlier timer counts": {request(containerrecreatetest.Phase(""), containerrecreatetest.Deadline),
			containerrecreatetest.Pod(), 0, writes{},
			50 * time.Second},
		"CRR-060, CRR-093, CRR-100 it is answered and waits, however long": {request(containerrecreatetest.Phase("Pending")),
			containerrecreatetest.Pod(), 2 * time.Minute, writes{},
			0},
		"CRR-062 queued, no deadline":  {request(containerrecreatetest.Phase("Pending")), containerrecreatetest.Pod(), 0, writes{}, 0},
		"CRR-063 at work: nothing new": {request(), containerrecreatetest.Pod(), 0, writes{}, 3 * time.Second},
		"CRR-063 at work: the deadline is nearer": {request(containerrecreatetest.Deadline), containerrecreatetest.Pod(), 299 * time.Second,
			writes{},
			time.Second},
		"CRR-070, CRR-071, CRR-072 a new container, by its identity": {request(), containerrecreatetest.Pod(containerrecreatetest.Restarted), 0,
			writes{Status: `{"containerStatusSnapshot":[{"name":"app","ready":true,"restartCount":2,"containerID":"c://app-2"}]}`}, 3 * time.Second},
		"CRR-070 in the order of the request": {request(), containerrecreatetest.Pod(containerrecreatetest.Restarted,
			func(p *corev1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "c://proxy-2" }), 0,
			writes{Status: `{"containerStatusSnapshot":[{"name":"app","ready":true,"restartCount":2,"containerID":"c://app-2"},{"name":"proxy","ready":true,"restartCount":0,"containerID":"c://proxy-2"}]}`}, 3 * time.Second},
		"CRR-073 between two starts the old snapshot stays": {request(snapshot),
			containerrecreatetest.Pod(containerrecreatetest.Restarted, func(p *corev1.Pod) {
				p.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
			}), 0, writes{}, 3 * time.Second},
		"CRR-074 the same snapshot is not written": {request(snapshot), containerrecreatetest.Pod(containerrecreatetest.Restarted), 0, writes{},
			3 * time.Second},
		"CRR-075 a container without status": {request(), containerrecreatetest.Pod(containerrecreatetest.Restarted,
			func(p *corev1.Pod) { p.Status.ContainerStatuses = p.Status.ContainerStatuses[1:] }), 0,
			writes{Status: `{"containerStatusSnapshot":[{"name":"app","ready":true,"restartCount":2,"containerID":"c://app-2"}]}`}, 3 * time.Second},
		"CRR-064, CRR-080, CRR-082, CRR-085 out of service first": {request(containerrecreatetest.Grace), containerrecreatetest.Pod(), 0,
			writes{Finalizer: "add", Pod: "KruisePodReady=False, Ready=False", Status: `{` + condition +
				`the pod is not ready for this request"}]}`}, 3 * time.Second},
		"CRR-082 the condition is made where there is none": {request(containerrecreatetest.Grace),
			containerrecreatetest.Pod(func(p *corev1.Pod) { p.Status.Conditions = p.Status.Conditions[:2] }), 0,
			writes{Finalizer: "add", Pod: "KruisePodReady=False, Ready=False", Status: `{` + condition +
				`the pod is not ready for this request"}]}`}, 3 * time.Second},
		"CRR-081 died after the pod was held: only the condition is missing": {request(containerrecreatetest.Grace, containerrecreatetest.Held),
			containerrecreatetest.Pod(heldPod,
				func(p *corev1.Pod) { p.Status.Conditions[0].Status = "False" }), 0,
			writes{Status: `{` + condition + `the pod is not ready for this request"}]}`}, 3 * time.Second},
		"CRR-084 no gate": {request(containerrecreatetest.Grace), containerrecreatetest.Pod(func(p *corev1.Pod) { p.Spec.ReadinessGates = nil }),
			0,
			writes{Status: `{` + condition + `the pod has no readiness gate KruisePodReady, so it stays as ready as it is"}]}`}, 3 * time.Second},
		"CRR-085 recorded: its time does not move, nothing is written": {request(containerrecreatetest.Grace, containerrecreatetest.Held,
			recorded), containerrecreatetest.Pod(heldPod), 0, writes{},
			3 * time.Second},
		"CRR-085 other conditions stay": {request(containerrecreatetest.Grace, containerrecreatetest.Held, recorded,
			func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Conditions[0].Type = "Other" }),
			containerrecreatetest.Pod(heldPod, func(p *corev1.Pod) { p.Status.Conditions[0].Status = "False" }), 0,
			writes{Status: `{"conditions":[{"type":"Other","status":"True","lastTransitionTime":"2026-01-01T12:00:00Z","reason":"R","message":"m"},` +
				strings.TrimPrefix(condition, `"conditions":[`) + `the pod is not ready for this request"}]}`}, 3 * time.Second},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			now := containerrecreatetest.Noon.Add(10 * time.Second)
			if test.at > 0 {
				now = containerrecreatetest.Noon.Add(test.at)
			}
			before := test.request.DeepCopy()
			plan := NewPlan(Snapshot{Request: test.request, Pod: test.pod, Now: now})
			if diff := cmp.Diff(test.want, shown(t, plan)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if plan.After != test.after {
				t.Errorf("time to the next pass: got %v, want %v", plan.After, test.after)
			}
			if plan.Why == "" {
				t.Error("why: got nothing, want some text")
			}
			if diff := cmp.Diff(before, test.request); diff != "" {
				t.Errorf("the input was modified:\n%s", diff)
			}
		})
	}
}

func idle(r *appsv1beta1.ContainerRecreateRequest) { delete(r.Labels, pub.RecreateActive) }

func recorded(r *appsv1beta1.ContainerRecreateRequest) {
	r.Status.Conditions = []metav1.Condition{{Type: "PreRecreateGrace", Status: "True", Reason: "R", Message: "m",
		LastTransitionTime: metav1.NewTime(containerrecreatetest.Noon)}}
}

func snapshot(r *appsv1beta1.ContainerRecreateRequest) {
	r.Status.ContainerStatusSnapshot = []appsv1beta1.ContainerRecreateRequestContainerStatus{{Name: "app", Ready: true, RestartCount: 2,
		ContainerID: "c://app-2"}}
}

// CRR-014, CRR-066, CRR-162: what succeeded stays so, what failed keeps its own reason.
func TestAbandonedContainersKeepTheirOwnEnd(t *testing.T) {
	request := containerrecreatetest.Request(containerrecreatetest.Deadline, containerrecreatetest.Succeeded,
		func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Status.ContainerRecreateStates[1].Phase = "Recreating"
			r.Spec.Containers = append(r.Spec.Containers, appsv1beta1.ContainerRecreateRequestContainer{Name: "log"},
				appsv1beta1.ContainerRecreateRequestContainer{Name: "broken"})
			r.Status.ContainerRecreateStates = append(r.Status.ContainerRecreateStates,
				appsv1beta1.ContainerRecreateRequestContainerRecreateState{Name: "broken", Phase: "Failed", Message: "kill container error: x"})
		})
	plan := NewPlan(Snapshot{Request: request, Pod: containerrecreatetest.Pod(), Now: containerrecreatetest.Noon.Add(time.Hour)})
	want := []appsv1beta1.ContainerRecreateRequestContainerRecreateState{
		{Name: "app", Phase: "Succeeded", IsKilled: true},
		{Name: "proxy", Phase: "Failed", IsKilled: true, Message: "recreating has exceeded the activeDeadlineSeconds"},
		{Name: "log", Phase: "Failed", Message: "recreating has exceeded the activeDeadlineSeconds"},
		{Name: "broken", Phase: "Failed", Message: "kill container error: x"},
	}
	if diff := cmp.Diff(any(want), plan.Status["containerRecreateStates"]); diff != "" {
		t.Errorf("status containerRecreateStates (-want +got):\n%s", diff)
	}
}

// CRR-136, CRR-137: how it ended is told with the containers that failed.
func TestHowRequestsEnd(t *testing.T) {
	cases := map[string]struct {
		change func(*appsv1beta1.ContainerRecreateRequest)
		want   [4]string
	}{
		"all came back": {containerrecreatetest.Succeeded, [4]string{"Succeeded", "Normal", "Completed", "all containers were recreated"}},
		"CRR-015 one failed": {func(r *appsv1beta1.ContainerRecreateRequest) {
			containerrecreatetest.Succeeded(r)
			r.Status.ContainerRecreateStates[0].Phase, r.Status.ContainerRecreateStates[0].Message = "Failed", "kill container error: no"
		}, [4]string{"Failed", "Warning", "Failed", "failed containers: app (kill container error: no)"}},
		"the deadline": {func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Status.Message = "recreating has exceeded the activeDeadlineSeconds"
		}, [4]string{"DeadlineExceeded", "Warning", "DeadlineExceeded", "recreating has exceeded the activeDeadlineSeconds"}},
		"no answer": {func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Status.Message = "daemon has not responded for a long time"
		}, [4]string{"NoAnswer", "Warning", "Failed", "daemon has not responded for a long time: look whether the node daemon runs on node node-a"}},
		"no pod": {func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Message = "pod has gone" },
			[4]string{"PodGone", "Warning", "Failed", "pod has gone"}},
		"no runtime": {func(r *appsv1beta1.ContainerRecreateRequest) { r.Status.Message = "failed to find runtime service: x" },
			[4]string{"Failed", "Warning", "Failed", "failed to find runtime service: x"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			request := containerrecreatetest.Request(containerrecreatetest.Done, test.change)
			result := ResultOf(request)
			kind, reason, note := Event(request, result)
			if got := [4]string{string(result), kind, reason, note}; got != test.want {
				t.Errorf("result and event: got %v, want %v", got, test.want)
			}
		})
	}
}

// CRR-003, CRR-012: what a request does not say means nothing: no deadline, no deletion, no time out of
// service.
func TestAbsentMeansNothing(t *testing.T) {
	year := containerrecreatetest.Noon.Add(365 * 24 * time.Hour)
	for name, r := range map[string]*appsv1beta1.ContainerRecreateRequest{
		"under way":              containerrecreatetest.Request(),
		"under way, no strategy": containerrecreatetest.Request(func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Strategy = nil }),
		"queued":                 containerrecreatetest.Request(containerrecreatetest.Phase("Pending")),
		"completed":              containerrecreatetest.Request(containerrecreatetest.Done, idle),
		"completed, no strategy": containerrecreatetest.Request(containerrecreatetest.Done, idle,
			func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Strategy = nil }),
		"completed and succeeded": containerrecreatetest.Request(containerrecreatetest.Done, idle, containerrecreatetest.Succeeded),
	} {
		if plan := NewPlan(Snapshot{Request: r, Pod: containerrecreatetest.Pod(), Now: year}); !plan.Idle() {
			t.Errorf("%s: the plan is idle: got false, want true\n%s\n%+v", name, plan, shown(t, plan))
		}
	}
}

// CRR-013, CRR-067, CRR-135: whatever the phase, the manager's plan either leaves it or completes the
// request; of one that is completed it writes no status at all, whatever has become of pod, deadline and
// containers.
func TestPhasesOnlyMoveForward(t *testing.T) {
	pods := map[string]*corev1.Pod{"as it was": containerrecreatetest.Pod(),
		"restarted": containerrecreatetest.Pod(containerrecreatetest.Restarted), "gone": nil,
		"another": containerrecreatetest.Pod(func(p *corev1.Pod) { p.UID = "pod-2" })}
	for _, before := range []appsv1beta1.ContainerRecreateRequestPhase{"", "Pending", "Recreating", "Completed"} {
		for which, pod := range pods {
			for _, after := range []time.Duration{time.Second, 2 * time.Minute, time.Hour} {
				r := containerrecreatetest.Request(containerrecreatetest.Phase(before), containerrecreatetest.Deadline, containerrecreatetest.Grace)
				if before == "Completed" {
					containerrecreatetest.Done(r)
				}
				plan := NewPlan(Snapshot{Request: r, Pod: pod, Now: containerrecreatetest.Noon.Add(after)})
				written, writes := plan.Status["phase"]
				switch {
				case before == "Completed" && plan.Status != nil:
					t.Errorf("completed, pod %s, after %s: %v is written", which, after, plan.Status)
				case writes && written != appsv1beta1.ContainerRecreateRequestCompleted:
					t.Errorf("%q, pod %s, after %s: phase %v", before, which, after, written)
				case !writes && (plan.Status["completionTime"] != nil || plan.Status["containerRecreateStates"] != nil): // CRR-068
					t.Errorf("%q, pod %s, after %s: fields of the daemon: %v", before, which, after, plan.Status)
				}
			}
		}
	}
}

// CRR-061: a deadline in many years is none that has passed.
func TestDeadlinesFarAway(t *testing.T) {
	for _, seconds := range []int64{9999999999, 99999999999, math.MaxInt64} {
		request := containerrecreatetest.Request(containerrecreatetest.Phase("Pending"),
			func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.ActiveDeadlineSeconds = &seconds })
		if p := NewPlan(Snapshot{Request: request, Pod: containerrecreatetest.Pod(),
			Now: containerrecreatetest.Noon.Add(time.Minute)}); p.Status != nil {
			t.Errorf("%d: status: got %v, want nil\n%s", seconds, p.Status, p)
		} else if p.After <= 0 {
			t.Errorf("%d: time to the next pass: got %v, want more than 0\n%s", seconds, p.After, p)
		}
	}
}

// CRR-060 (part), CRR-061 (part): of several times that are due the first counts, and the plan says it.
func TestTheFirstDueTimeCounts(t *testing.T) {
	seconds := func(n int64) func(*appsv1beta1.ContainerRecreateRequest) {
		return func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.ActiveDeadlineSeconds = &n }
	}
	for name, tt := range map[string]struct {
		request *appsv1beta1.ContainerRecreateRequest
		after   time.Duration
		text    string
	}{
		"the deadline before the answer": {containerrecreatetest.Request(containerrecreatetest.Phase(""), seconds(30)), 20 * time.Second,
			"waiting for the daemon of node node-a to answer; again in 20s"},
		"the answer before the deadline": {containerrecreatetest.Request(containerrecreatetest.Phase(""), seconds(300)), 50 * time.Second,
			"waiting for the daemon of node node-a to answer; again in 50s"},
		"both at once": {containerrecreatetest.Request(containerrecreatetest.Phase(""), seconds(60)), 50 * time.Second,
			"waiting for the daemon of node node-a to answer; again in 50s"},
		"nothing is due": {containerrecreatetest.Request(containerrecreatetest.Phase("Pending")), 0, "waiting for its turn, phase Pending"},
	} {
		plan := NewPlan(Snapshot{Request: tt.request, Pod: containerrecreatetest.Pod(), Now: containerrecreatetest.Noon.Add(10 * time.Second)})
		if plan.After != tt.after {
			t.Errorf("%s: time to the next pass: got %v, want %v", name, plan.After, tt.after)
		}
		if plan.String() != tt.text {
			t.Errorf("%s: plan: got %q, want %q", name, plan.String(), tt.text)
		}
	}
}

// CRR-057 (part): a request has succeeded if every container that it asks for has, whatever the names of
// others are.
func TestSuccessIsThatOfTheContainersAskedFor(t *testing.T) {
	state := func(name string, phase appsv1beta1.ContainerRecreateRequestPhase) appsv1beta1.ContainerRecreateRequestContainerRecreateState {
		return appsv1beta1.ContainerRecreateRequestContainerRecreateState{Name: name, Phase: phase}
	}
	const good, bad = appsv1beta1.ContainerRecreateRequestSucceeded, appsv1beta1.ContainerRecreateRequestFailed
	for name, tt := range map[string]struct {
		states []appsv1beta1.ContainerRecreateRequestContainerRecreateState
		want   Result
	}{
		"both": {[]appsv1beta1.ContainerRecreateRequestContainerRecreateState{state("app", good), state("proxy", good)},
			Succeeded},
		"one of them": {[]appsv1beta1.ContainerRecreateRequestContainerRecreateState{state("app", good), state("proxy", bad)},
			Failed},
		"one, and another": {[]appsv1beta1.ContainerRecreateRequestContainerRecreateState{state("app", good), state("x", good)}, Failed},
		"both, not another": {[]appsv1beta1.ContainerRecreateRequestContainerRecreateState{state("app", good), state("proxy", good),
			state("x", bad)}, Succeeded},
		"nothing is known": {nil, Failed},
	} {
		r := containerrecreatetest.Request(containerrecreatetest.Done)
		r.Status.ContainerRecreateStates = tt.states
		if got := ResultOf(r); got != tt.want {
			t.Errorf("%s: result of the request: got %q, want %q", name, got, tt.want)
		}
	}
	for message, want := range map[string]Result{restart.MessageDeadline: DeadlineExceeded, restart.MessageNoAnswer: NoAnswer,
		restart.MessagePodGone: PodGone, "other": Failed} {
		r := containerrecreatetest.Request(containerrecreatetest.Done, containerrecreatetest.Succeeded)
		if r.Status.Message = message; ResultOf(r) != want {
			t.Errorf("result by the message %q: got %s, want %s", message, ResultOf(r), want)
		}
	}
}
