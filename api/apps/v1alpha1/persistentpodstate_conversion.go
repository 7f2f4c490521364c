package v1alpha1

import "github.com/afloat-project/afloat/api/apps/v1beta1"

// Conversion of PersistentPodStates: the lists of keys have other names (PPS-090).

// ToV1beta1 returns the PersistentPodState in the v1beta1 form. It does not modify in. What the v1beta1 schema refuses is left out, or made
// what it takes: else no status could be written (PPS-092).
func (in *PersistentPodState) ToV1beta1() *v1beta1.PersistentPodState {
	out := in.Renamed()
	for i := range out.Spec.PreferredPersistentTopology {
		if weight := &out.Spec.PreferredPersistentTopology[i].Weight; *weight < 0 {
			*weight = 1
		}
	}
	switch out.Spec.PersistentPodStateRetentionPolicy {
	case v1beta1.RetainWhenScaled, v1beta1.RetainWhenDeleted:
	default:
		out.Spec.PersistentPodStateRetentionPolicy = ""
	}
	return out
}

// Renamed returns the PersistentPodState with the names of v1beta1 and the values that it has, also those that v1beta1 refuses. It does not
// modify in.
func (in *PersistentPodState) Renamed() *v1beta1.PersistentPodState {
	in = in.DeepCopy()
	out := &v1beta1.PersistentPodState{ObjectMeta: in.ObjectMeta, Status: in.Status,
		Spec: v1beta1.PersistentPodStateSpec{PersistentPodStateRest: in.Spec.PersistentPodStateRest,
			PersistentPodStateRetentionPolicy: in.Spec.PersistentPodStateRetentionPolicy,
			PreferredPersistentTopology: each(in.Spec.PreferredPersistentTopology, func(t PreferredTopologyTerm) v1beta1.PreferredTopologyTerm {
				return v1beta1.PreferredTopologyTerm{Weight: t.Weight, Preference: v1beta1.NodeTopologyTerm{Keys: t.Preference.NodeTopologyKeys}}
			})}}
	if required := in.Spec.RequiredPersistentTopology; required != nil {
		out.Spec.RequiredPersistentTopology = &v1beta1.NodeTopologyTerm{Keys: required.NodeTopologyKeys}
	}
	return out
}

// PersistentPodStateFromV1beta1 returns the PersistentPodState in the v1alpha1 form. It does not modify in.
func PersistentPodStateFromV1beta1(in *v1beta1.PersistentPodState) *PersistentPodState {
	in = in.DeepCopy()
	out := &PersistentPodState{ObjectMeta: in.ObjectMeta, Status: in.Status,
		Spec: PersistentPodStateSpec{PersistentPodStateRest: in.Spec.PersistentPodStateRest,
			PersistentPodStateRetentionPolicy: in.Spec.PersistentPodStateRetentionPolicy,
			PreferredPersistentTopology: each(in.Spec.PreferredPersistentTopology, func(t v1beta1.PreferredTopologyTerm) PreferredTopologyTerm {
				return PreferredTopologyTerm{Weight: t.Weight, Preference: NodeTopologyTerm{NodeTopologyKeys: t.Preference.Keys}}
			})}}
	if required := in.Spec.RequiredPersistentTopology; required != nil {
		out.Spec.RequiredPersistentTopology = &NodeTopologyTerm{NodeTopologyKeys: required.Keys}
	}
	return out
}
