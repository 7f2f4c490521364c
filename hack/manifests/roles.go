package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/framework"
)

var (
	reading = []string{"get", "list", "watch"}
	writing = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
)

// scaled returns the names of the definitions in a folder that have the subresource scale.
func scaled(folder string) (map[string]bool, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}

	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a definition: %w", err)
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &definition); err != nil {
			return nil, fmt.Errorf("reading definition %s: %w", file, err)
		}
		names[definition.Name] = slices.ContainsFunc(definition.Spec.Versions,
			func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
				return version.Subresources != nil && version.Subresources.Scale != nil
			})
	}

	return names, nil
}

// usersRoles returns the roles that add the kinds to the roles view, edit and admin of Kubernetes. scalable
// holds the names of definitions that have the subresource scale.
func usersRoles(kinds []framework.Kind, scalable map[string]bool) []rbacv1.ClusterRole {
	view := role("view", "view")
	edit := role("edit", "edit", "admin")
	admin := role("admin", "admin")
	for i := range kinds {
		kind := &kinds[i]
		status, objects := []string{kind.Plural + "/status"}, []string{kind.Plural}
		if scalable[kind.Definition()] {
			objects = append(objects, kind.Plural+"/scale")
		}

		switch kind.Access {
		case framework.View, framework.Edit:
			allow(&view, kind.Group, reading, append(objects, status...)...)
		case framework.Administer:
			allow(&admin, kind.Group, writing, objects...)
			allow(&admin, kind.Group, reading, status...)
		case framework.NotForUsers:
		}
		if kind.Access == framework.Edit {
			allow(&edit, kind.Group, writing, objects...)
			allow(&edit, kind.Group, reading, status...)
		}
	}

	return []rbacv1.ClusterRole{view, edit, admin}
}

// role returns an empty role that is added to roles of Kubernetes.
func role(name string, to ...string) rbacv1.ClusterRole {
	labels := map[string]string{}
	for _, other := range to {
		labels["rbac.authorization.k8s.io/aggregate-to-"+other] = "true"
	}
	return rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: "aggregate-kruise-" + name, Labels: labels},
	}
}

// allow adds resources to the rule of the role for their group and verbs.
func allow(role *rbacv1.ClusterRole, group string, verbs []string, resources ...string) {
	i := slices.IndexFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return rule.APIGroups[0] == group && slices.Equal(rule.Verbs, verbs)
	})
	if i < 0 {
		i = len(role.Rules)
		role.Rules = append(role.Rules, rbacv1.PolicyRule{APIGroups: []string{group}, Verbs: verbs})
	}
	role.Rules[i].Resources = append(role.Rules[i].Resources, resources...)
}

// encode writes roles as one YAML file.
func encode(roles []rbacv1.ClusterRole) ([]byte, error) {
	text := bytes.NewBufferString("# What users with the roles of Kubernetes may do with the project's kinds (OPS-084).\n" +
		"# Written by `make generate` from internal/registry, which says why.\n")
	for i := range roles {
		one, err := yaml.Marshal(&roles[i])
		if err != nil {
			return nil, fmt.Errorf("encoding role %s: %w", roles[i].Name, err)
		}
		if i > 0 {
			text.WriteString("---\n")
		}
		text.Write(one)
	}
	return text.Bytes(), nil
}
