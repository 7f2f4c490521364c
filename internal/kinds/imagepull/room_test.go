package imagepull

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// BenchmarkJobOverFullNodes is a pass over a job that waits for its turn on nodes with many images of others.
func BenchmarkJobOverFullNodes(b *testing.B) {
	s := JobSnapshot{Job: imagepulltest.Job(imagepulltest.Parallelism(1)), Now: imagepulltest.Noon}
	for i := range 1000 {
		node := imagepulltest.Blank(fmt.Sprint("n", i))
		node.UID, node.ResourceVersion = node.UID+"-"+node.UID, fmt.Sprint(i)
		node.Spec.Images = map[string]appsv1beta1.ImageSpec{}
		for j := range 256 {
			node.Spec.Images[fmt.Sprint("registry.example.com/image-",
				j)] = appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "1",
				OwnerReferences: []corev1.ObjectReference{{Namespace: fmt.Sprint("team-", j%4), Name: "job", UID: "uid"}}}}}
		}
		s.Nodes = append(s.Nodes, node)
	}
	s.Rooms = &Rooms{}
	for b.Loop() {
		PlanJob(s)
	}
}

// IMG-097 (part): what is remembered of a NodeImage is that of its version, for each namespace by itself, and
// goes with it.
func TestRoomIsThatOfTheVersion(t *testing.T) {
	rooms, node, others := &Rooms{}, imagepulltest.Tagged("n"), imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Namespace = "other" })
	check := func() {
		t.Helper()
		for range 2 {
			for _, job := range []*appsv1beta1.ImagePullJob{imagepulltest.Job(), others} {
				if got, want := rooms.sums(node, job.Namespace), sumsOf(node, job.Namespace); got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		}
	}
	for version := range 3 {
		node.ResourceVersion = fmt.Sprint("v", version)
		node.Spec.Images[node.ResourceVersion] = node.Spec.Images["app"]
		check()
	}
	node.UID, node.Spec.Images = "again", nil
	check()
	if rooms.Forget("n"); len(rooms.of) > 0 {
		t.Errorf("rooms after the node was forgotten: got %v, want none", rooms.of)
	}
}
