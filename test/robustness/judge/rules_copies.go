package judge

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// distribution returns the ResourceDistribution that controls a ConfigMap, or nil.
func (s *state) distribution(o *object) *object {
	if o == nil {
		return nil
	}
	c := metav1.GetControllerOf(&o.ObjectMeta)
	if c == nil || c.Kind != "ResourceDistribution" {
		return nil
	}
	found := s.objects[key{"resourcedistributions", "", c.Name}]
	if found == nil || found.UID != c.UID {
		return nil
	}
	return found
}

func (s *spec) isTarget(namespace string) bool {
	for _, of := range s.Targets.Included.List {
		if of.Name == namespace {
			return true
		}
	}
	return false
}

// foreign is about what belongs to others (RD-003).
var foreign = rule{
	name:    "objects of others",
	promise: "a manager makes, changes and deletes no ConfigMap but the copies of ResourceDistributions",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "configmaps" || c.by == "" {
			return false, ""
		}
		for _, o := range []*object{c.before, c.after} {
			if o != nil && s.distribution(o) == nil {
				return true, "no ResourceDistribution controls it"
			}
		}
		return true, ""
	},
}

// copies are what ResourceDistributions keep in namespaces (RD-001, RD-002, RD-070).
var copies = rule{
	name:    "copies",
	promise: "a manager writes into a copy what the ResourceDistribution has, and deletes none in a target",
	check: func(s *state, c *change) (bool, string) {
		if c.Resource != "configmaps" || c.by == "" {
			return false, ""
		}
		if c.after == nil || c.after.DeletionTimestamp != nil {
			of := s.distribution(c.before)
			if of == nil || of.DeletionTimestamp != nil {
				return false, ""
			}
			stays := !slices.ContainsFunc(s.specs(of), func(sp spec) bool { return !sp.isTarget(c.Namespace) })
			if stays {
				return true, fmt.Sprintf("the namespace is a target of %s", of.key)
			}
			return true, ""
		}
		of := s.distribution(c.after)
		if of == nil || c.before != nil && maps.Equal(c.before.data, c.after.data) {
			return false, ""
		}
		if !slices.ContainsFunc(s.specs(of), func(sp spec) bool { return maps.Equal(sp.Resource.Data, c.after.data) }) {
			return true, fmt.Sprintf("the copy becomes %v, and %s has %v", c.after.data, of.key, of.spec.Resource.Data)
		}
		return true, ""
	},
}

// copiesEnd says what is wrong with a ResourceDistribution at the end (RD-050, RD-090).
func (s *state) copiesEnd(o *object) string {
	good, conflicts := 0, 0
	for k, at := range s.objects {
		if k.resource != "configmaps" || k.name != o.spec.Resource.Metadata.Name {
			continue
		}
		owned, target := at.owner() == o.UID, o.spec.isTarget(k.namespace)
		switch {
		case owned && !target:
			return fmt.Sprintf("%s is there, and its namespace is no target", k)
		case owned && !maps.Equal(at.data, o.spec.Resource.Data):
			return fmt.Sprintf("%s has %v, and should have %v", k, at.data, o.spec.Resource.Data)
		case owned:
			good++
		case target:
			conflicts++
		}
	}
	all := len(o.spec.Targets.Included.List)
	if st := o.status; good+conflicts != all || st.Desired != all || st.Succeeded != good || st.Failed != conflicts {
		return fmt.Sprintf("the status has %d targets, %d with a copy, %d failed; there are %d, %d, and %d that others took",
			st.Desired, st.Succeeded, st.Failed, all, good, conflicts)
	}
	return ""
}
