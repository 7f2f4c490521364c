package v1alpha1

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// Conversion of CloneSets (CS-250 to CS-258). Both directions are total and lose nothing: no stored object fails to convert.
//
// Most fields have a place in both versions and are carried over by the plain conversions of this file. What these would lose on the way
// back is kept in an annotation, see cloneset_remainder.go.
//
// The API server forbids a conversion webhook to change anything of the metadata but labels and annotations; nothing else is changed.

// ToV1beta1 returns the CloneSet in the v1beta1 form. It does not modify in (CS-257).
func (in *CloneSet) ToV1beta1() *v1beta1.CloneSet {
	out := plainToBeta(in)
	held := takeRemainder(out)
	for _, p := range cloneSetPieces {
		p.restoreBeta(held, in, out)
	}
	keep := remainder{}
	back := plainToAlpha(out)
	for _, p := range cloneSetPieces {
		p.holdAlpha(keep, in, back, out)
	}
	putRemainder(out, keep)
	return out
}

// CloneSetFromV1beta1 returns the CloneSet in the v1alpha1 form. It does not modify in (CS-257).
func CloneSetFromV1beta1(in *v1beta1.CloneSet) *CloneSet {
	out := plainToAlpha(in)
	held := takeRemainder(out)
	for _, p := range cloneSetPieces {
		p.restoreAlpha(held, in, out)
	}
	keep := remainder{}
	back := plainToBeta(out)
	for _, p := range cloneSetPieces {
		p.holdBeta(keep, in, back, out)
	}
	putRemainder(out, keep)
	return out
}

// plainToBeta converts the fields that v1beta1 has (CS-250 to CS-254).
func plainToBeta(in *CloneSet) *v1beta1.CloneSet {
	in = in.DeepCopy()
	spec := &in.Spec
	out := &v1beta1.CloneSet{
		ObjectMeta: in.ObjectMeta,
		Spec: v1beta1.CloneSetSpec{
			Replicas:             spec.Replicas,
			Selector:             spec.Selector,
			Template:             spec.Template,
			VolumeClaimTemplates: spec.VolumeClaimTemplates,
			ScaleStrategy: v1beta1.CloneSetScaleStrategy{
				PodsToDelete:   spec.ScaleStrategy.PodsToDelete,
				MaxUnavailable: spec.ScaleStrategy.MaxUnavailable,
				EnablePVCReuse: !spec.ScaleStrategy.DisablePVCReuse,
			},
			RevisionHistoryLimit:    spec.RevisionHistoryLimit,
			MinReadySeconds:         spec.MinReadySeconds,
			Lifecycle:               spec.Lifecycle,
			ProgressDeadlineSeconds: spec.ProgressDeadlineSeconds,
		},
		Status: v1beta1.CloneSetStatus{
			ObservedGeneration:       in.Status.ObservedGeneration,
			Replicas:                 in.Status.Replicas,
			ReadyReplicas:            in.Status.ReadyReplicas,
			AvailableReplicas:        in.Status.AvailableReplicas,
			UpdatedReplicas:          in.Status.UpdatedReplicas,
			UpdatedReadyReplicas:     in.Status.UpdatedReadyReplicas,
			UpdatedAvailableReplicas: in.Status.UpdatedAvailableReplicas,
			ExpectedUpdatedReplicas:  in.Status.ExpectedUpdatedReplicas,
			UpdateRevision:           in.Status.UpdateRevision,
			CurrentRevision:          in.Status.CurrentRevision,
			CollisionCount:           in.Status.CollisionCount,
			LabelSelector:            in.Status.LabelSelector,
		},
	}
	for _, c := range in.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, v1beta1.CloneSetCondition{
			Type: v1beta1.CloneSetConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message,
			LastUpdateTime: c.LastUpdateTime, LastTransitionTime: c.LastTransitionTime,
		})
	}

	strategy := &spec.UpdateStrategy
	rolling := v1beta1.RollingUpdateCloneSetStrategy{
		Partition:             strategy.Partition,
		MaxUnavailable:        strategy.MaxUnavailable,
		MaxSurge:              strategy.MaxSurge,
		Paused:                strategy.Paused,
		PriorityStrategy:      strategy.PriorityStrategy,
		ScatterStrategy:       strategy.ScatterStrategy,
		InPlaceUpdateStrategy: strategy.InPlaceUpdateStrategy,
	}
	for i := range preDownloads {
		preDownloads[i].annotationToField(out.Annotations, &rolling.InPlaceUpdateStrategy)
	}
	if out.Labels[pub.CloneSetExcludePreparingDelete] == "true" {
		delete(out.Labels, pub.CloneSetExcludePreparingDelete)
		out.Spec.ScaleStrategy.ExcludePreparingDelete = true
	}

	target := &out.Spec.UpdateStrategy
	target.Type, rolling.PodUpdatePolicy = betaType(strategy.Type)
	if !isEmptyRolling(&rolling) {
		target.RollingUpdate = &rolling
	}
	return out
}

// plainToAlpha converts the fields that v1alpha1 has (CS-250 to CS-254).
func plainToAlpha(in *v1beta1.CloneSet) *CloneSet {
	in = in.DeepCopy()
	spec := &in.Spec
	out := &CloneSet{
		ObjectMeta: in.ObjectMeta,
		Spec: CloneSetSpec{
			Replicas:             spec.Replicas,
			Selector:             spec.Selector,
			Template:             spec.Template,
			VolumeClaimTemplates: spec.VolumeClaimTemplates,
			ScaleStrategy: CloneSetScaleStrategy{
				PodsToDelete:    spec.ScaleStrategy.PodsToDelete,
				MaxUnavailable:  spec.ScaleStrategy.MaxUnavailable,
				DisablePVCReuse: !spec.ScaleStrategy.EnablePVCReuse,
			},
			RevisionHistoryLimit:    spec.RevisionHistoryLimit,
			MinReadySeconds:         spec.MinReadySeconds,
			Lifecycle:               spec.Lifecycle,
			ProgressDeadlineSeconds: spec.ProgressDeadlineSeconds,
		},
		Status: CloneSetStatus{
			ObservedGeneration:       in.Status.ObservedGeneration,
			Replicas:                 in.Status.Replicas,
			ReadyReplicas:            in.Status.ReadyReplicas,
			AvailableReplicas:        in.Status.AvailableReplicas,
			UpdatedReplicas:          in.Status.UpdatedReplicas,
			UpdatedReadyReplicas:     in.Status.UpdatedReadyReplicas,
			UpdatedAvailableReplicas: in.Status.UpdatedAvailableReplicas,
			ExpectedUpdatedReplicas:  in.Status.ExpectedUpdatedReplicas,
			UpdateRevision:           in.Status.UpdateRevision,
			CurrentRevision:          in.Status.CurrentRevision,
			CollisionCount:           in.Status.CollisionCount,
			LabelSelector:            in.Status.LabelSelector,
		},
	}
	for _, c := range in.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, CloneSetCondition{
			Type: CloneSetConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message,
			LastUpdateTime: c.LastUpdateTime, LastTransitionTime: c.LastTransitionTime,
		})
	}

	rolling := spec.UpdateStrategy.RollingUpdate
	if rolling == nil {
		rolling = &v1beta1.RollingUpdateCloneSetStrategy{}
	}
	target := &out.Spec.UpdateStrategy
	target.Type = alphaType(spec.UpdateStrategy.Type, rolling.PodUpdatePolicy)
	target.Partition = rolling.Partition
	target.MaxUnavailable = rolling.MaxUnavailable
	target.MaxSurge = rolling.MaxSurge
	target.Paused = rolling.Paused
	target.PriorityStrategy = rolling.PriorityStrategy
	target.ScatterStrategy = rolling.ScatterStrategy
	target.InPlaceUpdateStrategy = rolling.InPlaceUpdateStrategy

	for i := range preDownloads {
		preDownloads[i].fieldToAnnotation(&out.Annotations, target.InPlaceUpdateStrategy)
	}
	if spec.ScaleStrategy.ExcludePreparingDelete {
		setKey(&out.Labels, pub.CloneSetExcludePreparingDelete, "true")
	} else if out.Labels[pub.CloneSetExcludePreparingDelete] == "true" {
		delete(out.Labels, pub.CloneSetExcludePreparingDelete)
	}
	return out
}

// betaType is the v1beta1 form of a type: a type and a policy (CS-252).
func betaType(kind CloneSetUpdateStrategyType) (v1beta1.CloneSetUpdateStrategyType, v1beta1.CloneSetPodUpdatePolicy) {
	switch kind {
	case "", RecreateCloneSetUpdateStrategyType:
		return v1beta1.RollingUpdateCloneSetUpdateStrategyType, v1beta1.ReCreateCloneSetPodUpdatePolicy
	case InPlaceIfPossibleCloneSetUpdateStrategyType, InPlaceOnlyCloneSetUpdateStrategyType:
		return v1beta1.RollingUpdateCloneSetUpdateStrategyType, v1beta1.CloneSetPodUpdatePolicy(kind)
	}
	return v1beta1.CloneSetUpdateStrategyType(kind), "" // OnDelete, or an unknown type, which stays as it is
}

// alphaType is the v1alpha1 form of a type and a policy (CS-252).
func alphaType(kind v1beta1.CloneSetUpdateStrategyType, policy v1beta1.CloneSetPodUpdatePolicy) CloneSetUpdateStrategyType {
	switch {
	case kind != "" && kind != v1beta1.RollingUpdateCloneSetUpdateStrategyType:
		return CloneSetUpdateStrategyType(kind)
	case policy == "":
		return RecreateCloneSetUpdateStrategyType
	}
	return CloneSetUpdateStrategyType(policy)
}

// isEmptyRolling says whether nothing at all is set.
func isEmptyRolling(r *v1beta1.RollingUpdateCloneSetStrategy) bool {
	return r.PodUpdatePolicy == "" && r.Partition == nil && r.MaxUnavailable == nil && r.MaxSurge == nil && !r.Paused &&
		r.PriorityStrategy == nil && len(r.ScatterStrategy) == 0 && r.InPlaceUpdateStrategy == nil
}

// preDownload is one pre-download setting: an annotation in v1alpha1, a field in v1beta1 (CS-254).
type preDownload struct {
	key string
	// get returns the field; nil if it is not set.
	get func(*pub.InPlaceUpdateStrategy) *intstr.IntOrString
	// set sets the field, or clears it if value is nil.
	set func(strategy *pub.InPlaceUpdateStrategy, value *intstr.IntOrString)
}

var preDownloads = []preDownload{
	{
		key: pub.ImagePreDownloadParallelism,
		get: func(s *pub.InPlaceUpdateStrategy) *intstr.IntOrString { return s.ImagePreDownloadParallelism },
		set: func(s *pub.InPlaceUpdateStrategy, v *intstr.IntOrString) { s.ImagePreDownloadParallelism = v },
	},
	{
		key: pub.ImagePreDownloadTimeoutSeconds,
		get: func(s *pub.InPlaceUpdateStrategy) *intstr.IntOrString { return widen(s.ImagePreDownloadTimeoutSeconds) },
		set: func(s *pub.InPlaceUpdateStrategy, v *intstr.IntOrString) {
			s.ImagePreDownloadTimeoutSeconds = narrow(v)
		},
	},
	{
		key: pub.ImagePreDownloadMinUpdatedReadyPods,
		get: func(s *pub.InPlaceUpdateStrategy) *intstr.IntOrString {
			return widen(s.ImagePreDownloadMinUpdatedReadyPods)
		},
		set: func(s *pub.InPlaceUpdateStrategy, v *intstr.IntOrString) {
			s.ImagePreDownloadMinUpdatedReadyPods = narrow(v)
		},
	},
}

// field returns the value of the setting in strategy, which may be nil.
func (p *preDownload) field(strategy *pub.InPlaceUpdateStrategy) *intstr.IntOrString {
	if strategy == nil {
		return nil
	}
	return p.get(strategy)
}

// annotationToField moves a recognised annotation into the field, unless the field has a value, which wins (CS-256). A text that is not an
// integer stays in the annotation, because the controller may understand it (a percentage, CS-345).
func (p *preDownload) annotationToField(annotations map[string]string, strategy **pub.InPlaceUpdateStrategy) {
	text, ok := annotations[p.key]
	if !ok {
		return
	}
	if p.field(*strategy) != nil {
		delete(annotations, p.key)
		return
	}
	number, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return
	}
	delete(annotations, p.key)
	if *strategy == nil {
		*strategy = &pub.InPlaceUpdateStrategy{}
	}
	value := intstr.FromInt32(int32(number))
	p.set(*strategy, &value)
}

// fieldToAnnotation moves the field into the annotation. If the field is not set, an annotation that would be recognised is outdated and
// removed.
func (p *preDownload) fieldToAnnotation(annotations *map[string]string, strategy *pub.InPlaceUpdateStrategy) {
	value := p.field(strategy)
	if value == nil {
		if _, err := strconv.ParseInt((*annotations)[p.key], 10, 32); err == nil {
			delete(*annotations, p.key)
		}
		return
	}
	if _, err := strconv.ParseInt(value.String(), 10, 32); err != nil {
		return // a value that the annotation cannot carry stays in the field
	}
	setKey(annotations, p.key, value.String())
	p.set(strategy, nil)
}

func setKey(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}

func widen(n *int32) *intstr.IntOrString {
	if n == nil {
		return nil
	}
	value := intstr.FromInt32(*n)
	return &value
}

func narrow(value *intstr.IntOrString) *int32 {
	if value == nil {
		return nil
	}
	n := int32(value.IntValue())
	return &n
}
