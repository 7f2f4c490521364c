package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/afloat-project/afloat/internal/framework"
)

// OPS-084 (part): what the roles of users allow follows from the entry of a kind.
func TestRolesOfUsers(t *testing.T) {
	kinds := make([]framework.Kind, 4)
	for access := range kinds {
		kinds[access] = framework.Kind{Access: framework.Access(access), Group: "g",
			Plural: []string{"ours", "seen", "edited", "administered"}[access]}
	}
	got := map[string]map[string][]string{}
	for _, role := range usersRoles(kinds, map[string]bool{"edited.g": true}) {
		of := map[string][]string{}
		for _, rule := range role.Rules {
			verbs := "read"
			if slices.Contains(rule.Verbs, "create") {
				verbs = "write"
			}
			of[verbs] = append(of[verbs], rule.Resources...)
		}
		got[role.Name] = of
	}
	if diff := cmp.Diff(map[string]map[string][]string{
		"aggregate-kruise-view":  {"read": {"seen", "seen/status", "edited", "edited/scale", "edited/status"}},
		"aggregate-kruise-edit":  {"write": {"edited", "edited/scale"}, "read": {"edited/status"}},
		"aggregate-kruise-admin": {"write": {"administered"}, "read": {"administered/status"}},
	}, got); diff != "" {
		t.Errorf("rights by role (-want +got):\n%s", diff)
	}
}

// TestOneRuleForEachGroupAndVerbs: rules stay few, so that people can read them.
func TestOneRuleForEachGroupAndVerbs(t *testing.T) {
	var role rbacv1.ClusterRole
	for _, resource := range []string{"a", "b"} {
		allow(&role, "one", reading, resource)
		allow(&role, "two", reading, resource)
		allow(&role, "one", writing, resource)
	}
	if len(role.Rules) != 3 {
		t.Errorf("number of rules: got %d, want 3: %+v", len(role.Rules), role.Rules)
	}
}
