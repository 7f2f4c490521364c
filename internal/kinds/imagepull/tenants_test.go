package imagepull

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// foreign is a job of another namespace that pulls the same image.
func foreign(i int, changes ...func(*appsv1beta1.ImagePullJob)) *appsv1beta1.ImagePullJob {
	return imagepulltest.Job(append(changes, func(j *appsv1beta1.ImagePullJob) {
		j.Namespace, j.Name = "other", fmt.Sprint("job-", i)
		j.UID = types.UID(j.Name)
	})...)
}

// assigned is a NodeImage with a job added.
func assigned(
	t *testing.T, node *appsv1beta1.NodeImage, job *appsv1beta1.ImagePullJob, changes ...func(*Assigner),
) *appsv1beta1.NodeImage {
	t.Helper()
	a := Assigner{Job: job, Now: imagepulltest.Noon, Random: func() float64 { return 0.5 }}
	for _, change := range changes {
		change(&a)
	}
	images, err := a.Assign(node)
	if err != nil {
		t.Fatal(err)
	}
	node = node.DeepCopy()
	if node.Spec.Images == nil {
		node.Spec.Images = map[string]appsv1beta1.ImageSpec{}
	}
	for name, image := range images {
		node.Spec.Images[name] = *image
	}
	return node
}

// IMG-086 (part): another tenant makes a job for the same image every few seconds. A node on which the image was
// pulled for the first job stays done for it: else a job of many nodes, which are done one after the other, never
// ends, and fails at its deadline.
func TestJobsOfAnotherTenantDoNotUndoWhatIsDone(t *testing.T) {
	victim := imagepulltest.Job()
	node := assigned(t, imagepulltest.Blank("n1"), victim)
	imagepulltest.Result(appsv1beta1.ImagePhaseSucceeded, node.Spec.Images["app"].Tags[0].Version)(node)
	done := func(node *appsv1beta1.NodeImage) int32 {
		p := PlanJob(JobSnapshot{Job: victim, Nodes: []*appsv1beta1.NodeImage{node, imagepulltest.Blank("n2")}, Now: imagepulltest.Noon})
		if p.Status == nil {
			t.Fatalf("no status: %+v", p)
		}
		return p.Status.Succeeded
	}
	if got := done(node); got != 1 {
		t.Fatalf("before: got %d nodes done, want 1", got)
	}
	for i := range 3 {
		node = assigned(t, node, foreign(i))
		if got := done(node); got != 1 {
			t.Errorf("after job %d of another tenant: got %d nodes done, want 1 as before", i, got)
		}
		imagepulltest.Result(appsv1beta1.ImagePhaseSucceeded, node.Spec.Images["app"].Tags[0].Version)(node) // quickly pulled again
	}
}

// IMG-086 (part): what a second job makes of a tag depends on the result for the first, on what the second asks
// for, and on whether the first has ended.
func TestWhenASecondJobPullsAgain(t *testing.T) {
	always := func(j *appsv1beta1.ImagePullJob) { j.Spec.ImagePullPolicy = appsv1beta1.PullAlways }
	cases := map[string]struct {
		first  appsv1beta1.ImagePullPolicy
		phase  appsv1beta1.ImagePullPhase
		second []func(*appsv1beta1.ImagePullJob)
		ended  bool
		again  bool
		policy appsv1beta1.ImagePullPolicy
	}{
		"succeeded":                             {phase: "Succeeded"},
		"succeeded with Always":                 {first: "Always", phase: "Succeeded", policy: "Always"},
		"succeeded, and the second is Always":   {phase: "Succeeded", second: []func(*appsv1beta1.ImagePullJob){always}, again: true, policy: "Always"},
		"succeeded for a job that has ended":    {phase: "Succeeded", ended: true, again: true},
		"failed":                                {phase: "Failed", again: true},
		"failed with Always":                    {first: "Always", phase: "Failed", again: true},
		"under way":                             {phase: "Pulling", again: true},
		"under way with Always":                 {first: "Always", phase: "Pulling", again: true, policy: "Always"},
		"the node has not answered, for Always": {first: "Always", again: true, policy: "Always"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			node := imagepulltest.Tagged("n", func(n *appsv1beta1.NodeImage) {
				image := n.Spec.Images["app"]
				image.Tags[0].ImagePullPolicy = test.first
				image.SandboxConfig = &appsv1beta1.SandboxConfig{Labels: map[string]string{"of": "first"}}
				n.Spec.Images["app"] = image
			})
			if test.phase != "" {
				imagepulltest.Result(test.phase, 2)(node)
			}
			second := foreign(0, append(test.second, func(j *appsv1beta1.ImagePullJob) {
				j.Spec.SandboxConfig = &appsv1beta1.SandboxConfig{Labels: map[string]string{"of": "second"}}
			})...)
			image := assigned(t, node, second, func(a *Assigner) {
				a.Now = a.Now.Add(time.Hour)
				a.Busy = func(owner corev1.ObjectReference) bool { return owner.Name == "warm" && !test.ended }
			}).Spec.Images["app"]
			tag := image.Tags[0]
			if len(tag.OwnerReferences) != 2 {
				t.Errorf("owners: got %+v, want both jobs", tag.OwnerReferences)
			}
			wanted, sandbox := int64(2), "first"
			if test.again {
				wanted, sandbox = 3, "second"
			}
			if tag.Version != wanted {
				t.Errorf("version: got %d, want %d", tag.Version, wanted)
			}
			if renewed := !tag.CreatedAt.Equal(imagepulltest.At(0)); renewed != test.again {
				t.Errorf("createdAt: got %s, want that it is new: %t", tag.CreatedAt, test.again)
			}
			if got := image.SandboxConfig.Labels["of"]; got != sandbox {
				t.Errorf("sandboxConfig: got that of the %s job, want that of the %s", got, sandbox)
			}
			if tag.ImagePullPolicy != test.policy {
				t.Errorf("imagePullPolicy: got %q, want %q", tag.ImagePullPolicy, test.policy)
			}
		})
	}
}

// IMG-088: another tenant makes a job for the same image that may take one second, and is not tried again. The pull
// of the first job, which may take ten minutes and five attempts, keeps its time: else it fails for the first job, too.
func TestAJobOfAnotherTenantDoesNotShortenAPull(t *testing.T) {
	long := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(600)), BackoffLimit: new(int32(5))}
	})
	short := foreign(0, until(1), func(j *appsv1beta1.ImagePullJob) {
		j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(1)), BackoffLimit: new(int32(0))}
	})
	if err := CheckJob(short, nil); err != nil {
		t.Fatalf("it is refused, as it should be: %v", err)
	}
	for name, jobs := range map[string][2]*appsv1beta1.ImagePullJob{"long before short": {long, short}, "short before long": {short, long}} {
		node := assigned(t, assigned(t, imagepulltest.Blank("n1"), jobs[0]), jobs[1])
		policy := node.Spec.Images["app"].Tags[0].PullPolicy
		if *policy.TimeoutSeconds != 600 || *policy.BackoffLimit != 5 || policy.ActiveDeadlineSeconds != nil {
			t.Errorf("%s: got %d s, %d further attempts and the deadline %v, want 600, 5 and none", name, *policy.TimeoutSeconds,
				*policy.BackoffLimit, policy.ActiveDeadlineSeconds)
		}
	}
	node := assigned(t, assigned(t, imagepulltest.Blank("n1"), imagepulltest.Job(until(900))), short)
	if deadline := node.Spec.Images["app"].Tags[0].PullPolicy.ActiveDeadlineSeconds; deadline == nil || *deadline != 900 {
		t.Errorf("deadline of both: got %v, want 900", deadline)
	}
}
