package slim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// TemplateSum is an annotation that slim Deployments and ReplicaSets have in the cache. It is equal if their
// templates are equal apart from the hash label (WS-085).
const TemplateSum = "internal.afloat/template-sum"

// DeploymentRevision is the annotation that changes when a Deployment changes to another ReplicaSet (WS-121).
const DeploymentRevision = "deployment.kubernetes.io/revision"

// Workload keeps of Deployments, ReplicaSets, StatefulSets and Jobs their identity, how many pods they want,
// and a checksum of their templates; their pods are found by their UID. An object that is slim already stays
// as it is.
func Workload(object any) (any, error) {
	var err error
	switch workload := object.(type) {
	case *appsv1.Deployment:
		if workload.Annotations[TemplateSum] == "" {
			workload.Annotations, err = slimAnnotations(workload.Annotations, &workload.Spec.Template)
		}
		workload.ManagedFields = nil
		spec, status := workload.Spec, workload.Status
		workload.Spec, workload.Status = appsv1.DeploymentSpec{Replicas: spec.Replicas},
			appsv1.DeploymentStatus{}
		if inSubset(workload) {
			workload.Spec.Strategy, workload.Spec.Selector = spec.Strategy, spec.Selector
			workload.Status = appsv1.DeploymentStatus{
				ObservedGeneration: status.ObservedGeneration,
				Replicas:           status.Replicas,
				ReadyReplicas:      status.ReadyReplicas,
				Conditions:         status.Conditions,
			}
		}
	case *appsv1.ReplicaSet:
		if workload.Annotations[TemplateSum] == "" {
			workload.Annotations, err = slimAnnotations(workload.Annotations, &workload.Spec.Template)
		}
		workload.ManagedFields = nil
		workload.Spec, workload.Status = appsv1.ReplicaSetSpec{Replicas: workload.Spec.Replicas},
			appsv1.ReplicaSetStatus{}
	case *appsv1.StatefulSet:
		annotations, spec, status := workload.Annotations, workload.Spec, workload.Status
		workload.ManagedFields, workload.Annotations = nil, nil
		for _, key := range remembering {
			if value, ok := annotations[key]; ok {
				setAnnotation(workload, key, value)
			}
		}
		workload.Spec, workload.Status = appsv1.StatefulSetSpec{
			Replicas: spec.Replicas,
			Ordinals: spec.Ordinals,
		}, appsv1.StatefulSetStatus{}
		if inSubset(workload) {
			if patch, ok := annotations[subsetPatch]; ok {
				setAnnotation(workload, subsetPatch, patch)
			}
			workload.Spec.UpdateStrategy, workload.Spec.Selector = spec.UpdateStrategy, spec.Selector
			workload.Status = appsv1.StatefulSetStatus{
				ObservedGeneration: status.ObservedGeneration,
				Replicas:           status.Replicas,
				ReadyReplicas:      status.ReadyReplicas,
			}
		}
	case *batchv1.Job:
		job(workload)
	default:
		return Metadata(object)
	}

	return object, err
}

// remembering are the annotations of StatefulSets that ask for a PersistentPodState (PPS-070).
var remembering = []string{pub.AutoGeneratePersistentPodState, pub.RequiredPersistentTopology,
	pub.PreferredPersistentTopology,
	pub.PersistentPodAnnotations, pub.PersistentPodStateRetentionPolicy}

func setAnnotation(of *appsv1.StatefulSet, key, value string) {
	if of.Annotations == nil {
		of.Annotations = map[string]string{}
	}
	of.Annotations[key] = value
}

// subsetName labels what is in a subset of a UnitedDeployment, subsetPatch is the annotation of its patch.
const subsetName, subsetPatch = "apps.kruise.io/subset-name", "apps.kruise.io/subset-patch"

// inSubset tells whether an object is a workload of a UnitedDeployment, or one of its pods: of those plans
// also read how they are, what sets the pace of their updates (UD-071, UD-073), the patch, and the selector,
// which names the subset whatever becomes of the label (UD-062).
func inSubset(object metav1.Object) bool {
	owner := metav1.GetControllerOfNoCopy(object)
	return object.GetLabels()[subsetName] != "" || owner != nil && owner.Kind == "UnitedDeployment"
}

// job also keeps what AdvancedCronJobs read of a run: its time, when it started, and how it ended (ACJ-031,
// ACJ-032).
func job(job *batchv1.Job) {
	annotations, status := job.Annotations, job.Status
	job.ManagedFields, job.Annotations = nil, nil
	job.Spec, job.Status = batchv1.JobSpec{Parallelism: job.Spec.Parallelism, Selector: job.Spec.Selector},
		batchv1.JobStatus{}
	if owner := metav1.GetControllerOfNoCopy(job); owner == nil || owner.Kind != "AdvancedCronJob" {
		return
	}

	if at, ok := annotations[pub.ScheduledAt]; ok {
		job.Annotations = map[string]string{pub.ScheduledAt: at}
	}
	job.Status.StartTime = status.StartTime

	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Status == corev1.ConditionTrue &&
			(c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			job.Status.Conditions = append(job.Status.Conditions,
				batchv1.JobCondition{Type: c.Type, Status: c.Status, Message: c.Message})
		}
	}
}

func slimAnnotations(
	annotations map[string]string, template *corev1.PodTemplateSpec,
) (map[string]string, error) {
	same := *template
	same.Labels = make(map[string]string, len(template.Labels))

	for key, value := range template.Labels {
		if key != pub.PodTemplateHash {
			same.Labels[key] = value
		}
	}

	text, err := json.Marshal(same)
	if err != nil {
		return nil, fmt.Errorf("encoding a template: %w", err)
	}

	sum := sha256.Sum256(text)
	kept := map[string]string{TemplateSum: hex.EncodeToString(sum[:16])}
	for _, key := range []string{DeploymentRevision, subsetPatch} {
		if value, ok := annotations[key]; ok {
			kept[key] = value
		}
	}

	return kept, nil
}

// SameWorkload tells whether nothing changed that decisions read: the fields of slim workloads, the spec of
// others, and the update revision of a CloneSet.
func SameWorkload(old, object any) bool {
	before, ok := old.(metav1.Object)
	after, ok2 := object.(metav1.Object)
	if !ok || !ok2 {
		return false
	}
	if before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil) ||
		before.GetAnnotations()[DeploymentRevision] != after.GetAnnotations()[DeploymentRevision] ||
		!equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences()) ||
		before.GetLabels()[pub.PodTemplateHash] != after.GetLabels()[pub.PodTemplateHash] {
		return false
	}

	if a, ok := old.(*appsv1beta1.CloneSet); ok {
		if b, ok := object.(*appsv1beta1.CloneSet); ok {
			return a.Status.UpdateRevision == b.Status.UpdateRevision &&
				a.Status.ObservedGeneration == b.Status.ObservedGeneration
		}
	}

	return true
}
