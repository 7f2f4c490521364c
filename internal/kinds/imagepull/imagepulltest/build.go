// Package imagepulltest builds NodeImages and jobs for tests of the plans and of the controllers.
package imagepulltest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Noon is when things happen in tests.
var Noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// At is that long after Noon.
func At(d time.Duration) *metav1.Time { return &metav1.Time{Time: Noon.Add(d)} }

// Owner is a reference to a job.
func Owner(job string) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: "apps.kruise.io/v1beta1",
		Kind:       "ImagePullJob",
		Namespace:  "shop",
		Name:       job,
		UID:        types.UID("uid-" + job),
	}
}

// Tagged is a NodeImage with app:1 owned by the job, asked for at Noon.
func Tagged(name string, changes ...func(*appsv1beta1.NodeImage)) *appsv1beta1.NodeImage {
	n := &appsv1beta1.NodeImage{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "1"},
	}
	n.Spec.Images = map[string]appsv1beta1.ImageSpec{
		"app": {
			Tags: []appsv1beta1.ImageTagSpec{
				{
					Tag:             "1",
					Version:         2,
					CreatedAt:       At(0),
					OwnerReferences: []corev1.ObjectReference{Owner("warm")},
					PullPolicy:      &appsv1beta1.ImageTagPullPolicy{TTLSecondsAfterFinished: new(int32(60))},
				},
			},
		},
	}
	for _, change := range changes {
		change(n)
	}
	return n
}

// Blank is a NodeImage without images.
func Blank(name string) *appsv1beta1.NodeImage {
	return Tagged(name, func(n *appsv1beta1.NodeImage) { n.Spec.Images = nil })
}

// Result is what the node tells of app:1.
func Result(phase appsv1beta1.ImagePullPhase, version int64) func(*appsv1beta1.NodeImage) {
	return func(n *appsv1beta1.NodeImage) {
		entry := appsv1beta1.ImageTagStatus{Tag: "1", Phase: phase, Version: version}
		if phase == appsv1beta1.ImagePhaseSucceeded || phase == appsv1beta1.ImagePhaseFailed {
			entry.CompletionTime = At(0)
		}
		n.Status.ImageStatuses = map[string]appsv1beta1.ImageStatus{
			"app": {Tags: []appsv1beta1.ImageTagStatus{entry}},
		}
	}
}

// Job is a job that pulls app:1.
func Job(changes ...func(*appsv1beta1.ImagePullJob)) *appsv1beta1.ImagePullJob {
	j := &appsv1beta1.ImagePullJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       "shop",
			Name:            "warm",
			UID:             "uid-warm",
			ResourceVersion: "1",
			Finalizers:      []string{pub.PullJobProtection},
		},
		Spec: appsv1beta1.ImagePullJobSpec{
			Image: "docker.io/library/app:1",
			ImagePullJobTemplate: appsv1beta1.ImagePullJobTemplate{
				CompletionPolicy: appsv1beta1.CompletionPolicy{Type: "Always"},
			},
		},
		Status: appsv1beta1.ImagePullJobStatus{StartTime: At(0)},
	}
	for _, change := range changes {
		change(j)
	}
	return j
}

// Parallelism sets how many nodes pull at a time.
func Parallelism(n int) func(*appsv1beta1.ImagePullJob) {
	return func(j *appsv1beta1.ImagePullJob) { j.Spec.Parallelism = new(intstr.FromInt32(int32(n))) }
}
