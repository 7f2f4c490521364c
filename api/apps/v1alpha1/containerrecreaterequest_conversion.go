package v1alpha1

import (
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Conversion of ContainerRecreateRequests (CRR-145 to CRR-152). Both directions are total. What v1alpha1 keeps in annotations is in lists
// of the status in v1beta1; an unreadable annotation stays as it is and has no effect (CRR-146, CRR-147). Conditions that have no
// annotation are kept in pub.ConversionData and restored from there (CRR-149).

// recreateRemainder is what pub.ConversionData of a v1alpha1 object holds.
type recreateRemainder struct {
	// Conditions of the v1beta1 object, if the annotation does not contain all of them.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ToV1beta1 returns the request in the v1beta1 form. It does not modify in (CRR-150).
func (in *ContainerRecreateRequest) ToV1beta1() *v1beta1.ContainerRecreateRequest {
	in = in.DeepCopy()
	out := &v1beta1.ContainerRecreateRequest{
		ObjectMeta: in.ObjectMeta,
		Spec: v1beta1.ContainerRecreateRequestSpec{
			PodName:                 in.Spec.PodName,
			ActiveDeadlineSeconds:   in.Spec.ActiveDeadlineSeconds,
			TTLSecondsAfterFinished: in.Spec.TTLSecondsAfterFinished,
		},
		Status: v1beta1.ContainerRecreateRequestStatus{
			Phase:          v1beta1.ContainerRecreateRequestPhase(in.Status.Phase),
			CompletionTime: in.Status.CompletionTime,
			Message:        in.Status.Message,
		},
	}
	if in.Spec.Containers != nil {
		out.Spec.Containers = make([]v1beta1.ContainerRecreateRequestContainer, 0, len(in.Spec.Containers))
	}
	for _, c := range in.Spec.Containers {
		out.Spec.Containers = append(out.Spec.Containers, v1beta1.ContainerRecreateRequestContainer{
			Name: c.Name, PreStop: (*v1beta1.ProbeHandler)(c.PreStop), Ports: c.Ports,
			StatusContext: (*v1beta1.ContainerRecreateRequestContainerContext)(c.StatusContext),
		})
	}
	if s := in.Spec.Strategy; s != nil {
		out.Spec.Strategy = &v1beta1.ContainerRecreateRequestStrategy{
			FailurePolicy:   v1beta1.ContainerRecreateRequestFailurePolicyType(s.FailurePolicy),
			OrderedRecreate: s.OrderedRecreate, ForceRecreate: s.ForceRecreate,
			TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds, UnreadyGracePeriodSeconds: s.UnreadyGracePeriodSeconds,
			MinStartedSeconds: s.MinStartedSeconds,
		}
	}
	for _, s := range in.Status.ContainerRecreateStates {
		out.Status.ContainerRecreateStates = append(out.Status.ContainerRecreateStates,
			v1beta1.ContainerRecreateRequestContainerRecreateState{
				Name: s.Name, Phase: v1beta1.ContainerRecreateRequestPhase(s.Phase), Message: s.Message, IsKilled: s.IsKilled,
			})
	}
	if snapshot, ok := readSnapshot(out.Annotations); ok {
		delete(out.Annotations, pub.RecreateContainerStatuses)
		out.Status.ContainerStatusSnapshot = snapshot
	}
	held := recreateRemainder{}
	if text, ok := out.Annotations[pub.ConversionData]; ok {
		delete(out.Annotations, pub.ConversionData)
		if !decode(json.RawMessage(text), &held) {
			held = recreateRemainder{}
		}
	}
	out.Status.Conditions = mergeGrace(held.Conditions, out.Annotations)
	if _, ok := readGrace(out.Annotations); ok {
		delete(out.Annotations, pub.RecreateUnreadyAcquired)
	}
	return out
}

// ContainerRecreateRequestFromV1beta1 returns the request in the v1alpha1 form. It does not modify in (CRR-150).
func ContainerRecreateRequestFromV1beta1(in *v1beta1.ContainerRecreateRequest) *ContainerRecreateRequest {
	in = in.DeepCopy()
	out := &ContainerRecreateRequest{
		ObjectMeta: in.ObjectMeta,
		Spec: ContainerRecreateRequestSpec{
			PodName:                 in.Spec.PodName,
			ActiveDeadlineSeconds:   in.Spec.ActiveDeadlineSeconds,
			TTLSecondsAfterFinished: in.Spec.TTLSecondsAfterFinished,
		},
		Status: ContainerRecreateRequestStatus{
			Phase:          ContainerRecreateRequestPhase(in.Status.Phase),
			CompletionTime: in.Status.CompletionTime,
			Message:        in.Status.Message,
		},
	}
	if in.Spec.Containers != nil {
		out.Spec.Containers = make([]ContainerRecreateRequestContainer, 0, len(in.Spec.Containers))
	}
	for _, c := range in.Spec.Containers {
		out.Spec.Containers = append(out.Spec.Containers, ContainerRecreateRequestContainer{
			Name: c.Name, PreStop: (*ProbeHandler)(c.PreStop), Ports: c.Ports,
			StatusContext: (*ContainerRecreateRequestContainerContext)(c.StatusContext),
		})
	}
	if s := in.Spec.Strategy; s != nil {
		out.Spec.Strategy = &ContainerRecreateRequestStrategy{
			FailurePolicy:   ContainerRecreateRequestFailurePolicyType(s.FailurePolicy),
			OrderedRecreate: s.OrderedRecreate, ForceRecreate: s.ForceRecreate,
			TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds, UnreadyGracePeriodSeconds: s.UnreadyGracePeriodSeconds,
			MinStartedSeconds: s.MinStartedSeconds,
		}
	}
	for _, s := range in.Status.ContainerRecreateStates {
		out.Status.ContainerRecreateStates = append(out.Status.ContainerRecreateStates, ContainerRecreateRequestContainerRecreateState{
			Name: s.Name, Phase: ContainerRecreateRequestPhase(s.Phase), Message: s.Message, IsKilled: s.IsKilled,
		})
	}
	// Readable annotations on a v1beta1 object are leftovers of older releases; the status is right (CRR-150).
	delete(out.Annotations, pub.ConversionData)
	if snapshot := in.Status.ContainerStatusSnapshot; snapshot != nil {
		setKey(&out.Annotations, pub.RecreateContainerStatuses, string(encode(snapshotForm(snapshot))))
	} else if _, ok := readSnapshot(out.Annotations); ok {
		delete(out.Annotations, pub.RecreateContainerStatuses)
	}
	if grace := meta.FindStatusCondition(in.Status.Conditions, v1beta1.ContainerRecreateRequestPreRecreateGrace); grace != nil &&
		grace.Status == metav1.ConditionTrue {
		setKey(&out.Annotations, pub.RecreateUnreadyAcquired, grace.LastTransitionTime.UTC().Format(time.RFC3339))
	} else if _, ok := readGrace(out.Annotations); ok {
		delete(out.Annotations, pub.RecreateUnreadyAcquired)
	}
	if !equality.Semantic.DeepEqual(mergeGrace(nil, out.Annotations), in.Status.Conditions) {
		setKey(&out.Annotations, pub.ConversionData, string(encode(recreateRemainder{Conditions: in.Status.Conditions})))
	}
	return out
}

// UnreadableAnnotations names the annotations with a v1alpha1 meaning that cannot be read; conversion ignores them (CRR-146, CRR-147).
func (in *ContainerRecreateRequest) UnreadableAnnotations() []string {
	var keys []string
	if text := in.Annotations[pub.RecreateContainerStatuses]; text != "" {
		if _, ok := readSnapshot(in.Annotations); !ok {
			keys = append(keys, pub.RecreateContainerStatuses)
		}
	}
	if text := in.Annotations[pub.RecreateUnreadyAcquired]; text != "" {
		if _, ok := readGrace(in.Annotations); !ok {
			keys = append(keys, pub.RecreateUnreadyAcquired)
		}
	}
	return keys
}

// mergeGrace returns the conditions with PreRecreateGrace as the annotation says: a changed annotation wins over pub.ConversionData.
func mergeGrace(conditions []metav1.Condition, annotations map[string]string) []metav1.Condition {
	since, ok := readGrace(annotations)
	var merged []metav1.Condition
	found := false
	for _, c := range conditions {
		if c.Type == v1beta1.ContainerRecreateRequestPreRecreateGrace {
			switch {
			case ok && (found || c.Status != metav1.ConditionTrue || !c.LastTransitionTime.Equal(&since)):
				continue
			case !ok && c.Status == metav1.ConditionTrue:
				continue
			}
			found = true
		}
		merged = append(merged, c)
	}
	if ok && !found {
		merged = append(merged, metav1.Condition{
			Type: v1beta1.ContainerRecreateRequestPreRecreateGrace, Status: metav1.ConditionTrue,
			Reason: v1beta1.ContainerRecreateRequestPreRecreateGrace, LastTransitionTime: since,
		})
	}
	return merged
}

func readGrace(annotations map[string]string) (metav1.Time, bool) {
	since, err := time.Parse(time.RFC3339, annotations[pub.RecreateUnreadyAcquired])
	if err != nil {
		return metav1.Time{}, false
	}
	return metav1.NewTime(since.Truncate(time.Second)), true
}

// containerStatusForm is an item of the annotation; all keys are always written, as v1alpha1 readers expect (CRR-146).
type containerStatusForm struct {
	Name         string `json:"name"`
	Ready        bool   `json:"ready"`
	RestartCount int32  `json:"restartCount"`
	ContainerID  string `json:"containerID"`
}

func snapshotForm(snapshot []v1beta1.ContainerRecreateRequestContainerStatus) []containerStatusForm {
	form := make([]containerStatusForm, 0, len(snapshot))
	for _, s := range snapshot {
		form = append(form, containerStatusForm(s))
	}
	return form
}

func readSnapshot(annotations map[string]string) ([]v1beta1.ContainerRecreateRequestContainerStatus, bool) {
	var form []containerStatusForm
	text, ok := annotations[pub.RecreateContainerStatuses]
	if !ok || !decode(json.RawMessage(text), &form) || form == nil {
		return nil, false
	}
	snapshot := make([]v1beta1.ContainerRecreateRequestContainerStatus, 0, len(form))
	for _, s := range form {
		snapshot = append(snapshot, v1beta1.ContainerRecreateRequestContainerStatus(s))
	}
	return snapshot, true
}
