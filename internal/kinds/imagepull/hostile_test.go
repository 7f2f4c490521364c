package imagepull

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-014, IMG-025, IMG-026, IMG-090: jobs that were stored before anybody judged them are pulled too: what
// they bring into a NodeImage is accepted there. Else every write for the job would be refused, and nobody
// told.
func TestJobsOfAnySortFitIntoNodeImages(t *testing.T) {
	for name, change := range map[string]func(*appsv1beta1.ImagePullJob){
		"a pull policy that nobody knows": func(j *appsv1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = "ifnotpresent" },
		"negative numbers": func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(-5)), BackoffLimit: new(int32(-1))}
			j.Spec.CompletionPolicy.ActiveDeadlineSeconds, j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int64(-7)), new(int32(math.MinInt32))
		},
		"huge numbers": func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(math.MaxInt32)), BackoffLimit: new(int32(math.MaxInt32))}
		},
		"a deadline that never comes": until(math.MaxInt64),
		"none, for ever":              never,
	} {
		job := imagepulltest.Job(change)
		images, err := Assigner{Job: job, ExtraTTL: time.Hour, Now: imagepulltest.Noon,
			Random: func() float64 { return 0.9 }}.Assign(imagepulltest.Blank("n"))
		if err != nil || images["app"] == nil {
			t.Fatalf("%s: %v", name, err)
		}
		node := imagepulltest.Blank("n")
		node.Spec.Images = map[string]appsv1beta1.ImageSpec{"app": *images["app"]}
		if err := CheckNodeImage(node, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	images, _ := Assigner{Job: imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = "?" }), Now: imagepulltest.Noon,
		Random: func() float64 { return 0 }}.Assign(imagepulltest.Blank("n"))
	if got := images["app"].Tags[0].ImagePullPolicy; got != appsv1beta1.PullAlways {
		t.Errorf("IMG-014: %s", got)
	}
}

// IMG-059, IMG-092, IMG-093: a deadline in many years is none that has passed.
func TestDeadlinesFarAway(t *testing.T) {
	for _, seconds := range []int64{9999999999, 99999999999, math.MaxInt64} {
		node := imagepulltest.Tagged("n", imagepulltest.Result(appsv1beta1.ImagePhasePulling, 2))
		if p := PlanJob(JobSnapshot{Job: imagepulltest.Job(until(seconds)), Nodes: []*appsv1beta1.NodeImage{node},
			Now: imagepulltest.Noon.Add(time.Minute)}); p.Status != nil && p.Status.CompletionTime != nil {
			t.Errorf("IMG-093 %d: %s", seconds, p.Status.Message)
		}
		node.Spec.Images["app"].Tags[0].PullPolicy.ActiveDeadlineSeconds = &seconds
		if p := PlanNode(nodeSnapshot(node, time.Hour)); len(p.GaveUp) != 0 {
			t.Errorf("IMG-059 %d: %+v", seconds, p.GaveUp)
		}
		waits := imagepulltest.Job(until(seconds), func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PodSelector = &appsv1beta1.ImagePullJobPodSelector{}
			j.OwnerReferences = []metav1.OwnerReference{{Kind: "CloneSet", Controller: new(true)}}
		})
		if p := PlanJob(JobSnapshot{Job: waits, Now: imagepulltest.Noon.Add(time.Minute)}); p.Status != nil && p.Status.CompletionTime != nil {
			t.Errorf("IMG-092 %d: %s", seconds, p.Status.Message)
		}
	}
}

// IMG-154, IMG-155: a job that still waits for the pods of its selector has ended nothing, though none of its
// no nodes is left.
func TestAListWaitsForJobsThatWaitForPods(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"a"}}}
	child := PlanList(list, nil, imagepulltest.Noon).Create[0]
	child.Status = appsv1beta1.ImagePullJobStatus{StartTime: imagepulltest.At(0)}
	if p := PlanList(list, []*appsv1beta1.ImagePullJob{child}, imagepulltest.Noon); p.Status.CompletionTime != nil || p.Status.Completed != 0 {
		t.Errorf("%+v", p.Status)
	}
	child.Status.CompletionTime = imagepulltest.At(time.Minute)
	if p := PlanList(list, []*appsv1beta1.ImagePullJob{child}, imagepulltest.Noon); p.Status.CompletionTime == nil || p.Status.Completed != 1 {
		t.Errorf("%+v", p.Status)
	}
}

// IMG-085, IMG-098: a node that dies while it pulls, or while it waits to, does not keep its slot for ever;
// one that comes back has it again.
func TestDeadNodesGiveTheirSlotsBack(t *testing.T) {
	for _, phase := range []appsv1beta1.ImagePullPhase{appsv1beta1.ImagePhasePulling, appsv1beta1.ImagePhaseWaiting} {
		s := JobSnapshot{Job: imagepulltest.Job(imagepulltest.Parallelism(1)), Now: imagepulltest.Noon.Add(time.Hour),
			Nodes: []*appsv1beta1.NodeImage{imagepulltest.Tagged("dead", imagepulltest.Result(phase, 2)), imagepulltest.Blank("next")}}
		s.NotReadySince = func(string) (time.Time, bool) { return time.Time{}, false }
		if p := PlanJob(s); len(p.Assign) != 0 || p.After != time.Minute {
			t.Errorf("alive: %v, again in %s", p.Assign, p.After)
		}
		s.NotReadySince = func(node string) (time.Time, bool) {
			return imagepulltest.Noon.Add(time.Hour - 50*time.Second), node == "dead"
		}
		if p := PlanJob(s); len(p.Assign) != 0 || p.After != 10*time.Second {
			t.Errorf("dead for 50 s: %v, again in %s", p.Assign, p.After)
		}
		s.Now = s.Now.Add(10 * time.Second)
		if p := PlanJob(s); len(p.Assign) != 1 || p.Assign[0] != "next" || p.Status.Active != 1 {
			t.Errorf("dead for a minute: %v %+v", p.Assign, p.Status)
		}
	}
}

// IMG-023, IMG-097: the jobs of one namespace leave room for those of others in each node, in number and in
// bytes, and who has no room is told why.
func TestOneNamespaceLeavesRoomForOthers(t *testing.T) {
	node := imagepulltest.Blank("n")
	fill := func(namespace, sandbox string, most int) (n int, note string) {
		for ; n < most; n++ {
			job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
				j.Namespace, j.Name, j.UID = namespace, fmt.Sprintf("j%d", n), types.UID(fmt.Sprintf("%s-%d", namespace, n))
				j.Spec.Image = fmt.Sprintf("%s/app-%d:1", namespace, n)
				if sandbox != "" {
					j.Spec.SandboxConfig = &appsv1beta1.SandboxConfig{Annotations: map[string]string{"a": sandbox}}
				}
			})
			if plan := PlanJob(JobSnapshot{Job: job, Nodes: []*appsv1beta1.NodeImage{node}, Now: imagepulltest.Noon}); len(plan.Assign) == 0 {
				return n, plan.Status.Message
			}
			images, err := Assigner{Job: job, Now: imagepulltest.Noon, Random: func() float64 { return 0 }}.Assign(node)
			if err != nil {
				t.Fatal(err)
			}
			if node.Spec.Images == nil {
				node.Spec.Images = map[string]appsv1beta1.ImageSpec{}
			}
			for name, image := range images {
				node.Spec.Images[name] = *image
			}
		}
		return n, ""
	}
	if n, note := fill("many", "", 2000); n != 256 || !strings.Contains(note,
		"1 node has no room for another image (at most 256 of one namespace)") {
		t.Errorf("%d, %s", n, note)
	}
	if n, note := fill("large", strings.Repeat("x", 4000), 2000); n < 40 || n > 70 || !strings.Contains(note,
		"(at most 256 KiB of one namespace)") {
		t.Errorf("%d, %s", n, note)
	}
	if n, note := fill("shop", "", 200); n != 200 {
		t.Errorf("%d, %s", n, note)
	}
	text, err := json.Marshal(node)
	if err != nil || len(text) > maxBytes {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	for i := range 40 {
		fill(fmt.Sprintf("crowd-%d", i), strings.Repeat("x", 4000), 10)
	}
	if text, err := json.Marshal(node); err != nil || len(text) > maxBytes+maxBytes/10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// What each node gets of a job is small, whatever the job asks for; a job that is new is told so (IMG-018,
// IMG-090).
func TestWhatNodesGetOfAJobIsBounded(t *testing.T) {
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.Spec.SandboxConfig = &appsv1beta1.SandboxConfig{Labels: map[string]string{"a": strings.Repeat("x", 300_000)}}
		j.Spec.PullPolicy = &appsv1beta1.PullPolicy{BackoffLimit: new(int32(math.MaxInt32))}
		j.Spec.CompletionPolicy.TTLSecondsAfterFinished = new(int32(math.MaxInt32))
	})
	images, err := Assigner{Job: job, Now: imagepulltest.Noon, Random: func() float64 { return 0 }}.Assign(imagepulltest.Blank("n"))
	if err != nil {
		t.Fatal(err)
	}
	if p := images["app"].Tags[0].PullPolicy; images["app"].SandboxConfig != nil || *p.BackoffLimit != 100 ||
		*p.TTLSecondsAfterFinished != 31*24*3600 {
		t.Errorf("%+v", images["app"])
	}
	if err := CheckJob(job, nil); err == nil || !strings.Contains(err.Error(),
		"spec.sandboxConfig has 300001 bytes of labels and annotations, at most 4096 are allowed") {
		t.Error(err)
	}
	if err := CheckJob(job, job); err != nil {
		t.Errorf("what is stored is refused again: %v", err)
	}
}
