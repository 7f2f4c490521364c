package imagepull

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

// IMG-014, IMG-025, IMG-026, IMG-090: jobs that were stored before anybody judged them are pulled too: what they bring into a NodeImage is
// accepted there. Else every write for the job would be refused, and nobody told.
func TestJobsOfAnySortFitIntoNodeImages(t *testing.T) {
	for name, change := range map[string]func(*appsv1beta1.ImagePullJob){
		"a pull policy that nobody knows": func(j *appsv1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = "ifnotpresent" },
		"negative numbers": func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: ptr(int32(-5)), BackoffLimit: ptr(int32(-1))}
			j.Spec.CompletionPolicy.ActiveDeadlineSeconds, j.Spec.CompletionPolicy.TTLSecondsAfterFinished = ptr(int64(-7)), ptr(int32(math.MinInt32))
		},
		"huge numbers": func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: ptr(int32(math.MaxInt32)), BackoffLimit: ptr(int32(math.MaxInt32))}
		},
		"a deadline that never comes": until(math.MaxInt64),
		"none, for ever":              never,
	} {
		job := warm(change)
		images, err := Assigner{Job: job, ExtraTTL: time.Hour, Now: noon, Random: func() float64 { return 0.9 }}.Assign(blank("n"))
		if err != nil || images["app"] == nil {
			t.Fatalf("%s: %v", name, err)
		}
		node := blank("n")
		node.Spec.Images = map[string]appsv1beta1.ImageSpec{"app": *images["app"]}
		if err := CheckNodeImage(node, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	images, _ := Assigner{Job: warm(func(j *appsv1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = "?" }), Now: noon, Random: func() float64 { return 0 }}.Assign(blank("n"))
	if got := images["app"].Tags[0].ImagePullPolicy; got != appsv1beta1.PullAlways {
		t.Errorf("IMG-014: %s", got)
	}
}

// IMG-059, IMG-092, IMG-093: a deadline in many years is none that has passed.
func TestDeadlinesFarAway(t *testing.T) {
	for _, seconds := range []int64{9999999999, 99999999999, math.MaxInt64} {
		node := tagged("n", result(appsv1beta1.ImagePhasePulling, 2))
		if p := PlanJob(JobSnapshot{Job: warm(until(seconds)), Nodes: []*appsv1beta1.NodeImage{node}, Now: noon.Add(time.Minute)}); p.Status != nil && p.Status.CompletionTime != nil {
			t.Errorf("IMG-093 %d: %s", seconds, p.Status.Message)
		}
		node.Spec.Images["app"].Tags[0].PullPolicy.ActiveDeadlineSeconds = &seconds
		if p := PlanNode(nodeSnapshot(node, time.Hour)); len(p.GaveUp) != 0 {
			t.Errorf("IMG-059 %d: %+v", seconds, p.GaveUp)
		}
		waits := warm(until(seconds), func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PodSelector = &appsv1beta1.ImagePullJobPodSelector{}
			j.OwnerReferences = []metav1.OwnerReference{{Kind: "CloneSet", Controller: ptr(true)}}
		})
		if p := PlanJob(JobSnapshot{Job: waits, Now: noon.Add(time.Minute)}); p.Status != nil && p.Status.CompletionTime != nil {
			t.Errorf("IMG-092 %d: %s", seconds, p.Status.Message)
		}
	}
}

// IMG-154, IMG-155: a job that still waits for the pods of its selector has ended nothing, though none of its no nodes is left.
func TestAListWaitsForJobsThatWaitForPods(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"a"}}}
	child := PlanList(list, nil, noon).Create[0]
	child.Status = appsv1beta1.ImagePullJobStatus{StartTime: at(0)}
	if p := PlanList(list, []*appsv1beta1.ImagePullJob{child}, noon); p.Status.CompletionTime != nil || p.Status.Completed != 0 {
		t.Errorf("%+v", p.Status)
	}
	child.Status.CompletionTime = at(time.Minute)
	if p := PlanList(list, []*appsv1beta1.ImagePullJob{child}, noon); p.Status.CompletionTime == nil || p.Status.Completed != 1 {
		t.Errorf("%+v", p.Status)
	}
}

// IMG-085, IMG-098: a node that dies while it pulls, or while it waits to, does not keep its slot for ever; one that comes back has it again.
func TestDeadNodesGiveTheirSlotsBack(t *testing.T) {
	for _, phase := range []appsv1beta1.ImagePullPhase{appsv1beta1.ImagePhasePulling, appsv1beta1.ImagePhaseWaiting} {
		s := JobSnapshot{Job: warm(width(1)), Now: noon.Add(time.Hour), Nodes: []*appsv1beta1.NodeImage{tagged("dead", result(phase, 2)), blank("next")}}
		s.NotReadySince = func(string) (time.Time, bool) { return time.Time{}, false }
		if p := PlanJob(s); len(p.Assign) != 0 || p.After != time.Minute {
			t.Errorf("alive: %v, again in %s", p.Assign, p.After)
		}
		s.NotReadySince = func(node string) (time.Time, bool) { return noon.Add(time.Hour - 50*time.Second), node == "dead" }
		if p := PlanJob(s); len(p.Assign) != 0 || p.After != 10*time.Second {
			t.Errorf("dead for 50 s: %v, again in %s", p.Assign, p.After)
		}
		s.Now = s.Now.Add(10 * time.Second)
		if p := PlanJob(s); len(p.Assign) != 1 || p.Assign[0] != "next" || p.Status.Active != 1 {
			t.Errorf("dead for a minute: %v %+v", p.Assign, p.Status)
		}
	}
}
