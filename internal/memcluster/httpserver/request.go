// Package httpserver has what API servers in memory need to serve over HTTP: paths, discovery, selectors, and
// errors as answers. Tests of the kubectl plugin and benchmarks have such servers.
package httpserver

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Path is what the path of a request names.
type Path struct {
	schema.GroupVersionResource
	Namespace, Name, Subresource string
}

// ParsePath parses a path: /api/v1 or /apis/GROUP/VERSION, optionally namespaces/NAMESPACE, and then
// resource, name and subresource. It returns false for all other paths.
func ParsePath(path string) (parsed Path, ok bool) {
	part := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(part) > 2 && part[0] == "api":
		parsed.Version, part = part[1], part[2:]
	case len(part) > 3 && part[0] == "apis":
		parsed.Group, parsed.Version, part = part[1], part[2], part[3:]
	default:
		return Path{}, false
	}

	if len(part) > 2 && part[0] == "namespaces" && part[2] != "status" {
		parsed.Namespace, part = part[1], part[2:]
	}
	if len(part) > 3 {
		return Path{}, false
	}
	part = append(part, "", "")
	parsed.Resource, parsed.Name, parsed.Subresource = part[0], part[1], part[2]
	return parsed, true
}

// StatusOf returns an error as the answer to a request.
func StatusOf(err error) *metav1.Status {
	status := metav1.Status{
		Status:  metav1.StatusFailure,
		Message: err.Error(),
		Code:    http.StatusInternalServerError,
	}
	if known := apierrors.APIStatus(nil); errors.As(err, &known) {
		status = known.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	return &status
}

// Selector selects objects by labels and fields.
type Selector struct {
	Labels labels.Selector
	Fields fields.Selector
}

// ParseSelector returns the selector in the query of a list or watch.
func ParseSelector(query url.Values) (s Selector, err error) {
	if s.Labels, err = labels.Parse(query.Get("labelSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	if s.Fields, err = fields.ParseSelector(query.Get("fieldSelector")); err != nil {
		return s, apierrors.NewBadRequest(err.Error())
	}
	return s, nil
}

// Matches reports whether an object is selected. field returns the value of a field such as metadata.name.
func (s Selector) Matches(object metav1.Object, field func(path string) string) bool {
	if !s.Labels.Empty() && !s.Labels.Matches(labels.Set(object.GetLabels())) {
		return false
	}
	if s.Fields.Empty() {
		return true
	}
	set := fields.Set{}
	for _, requirement := range s.Fields.Requirements() {
		set[requirement.Field] = field(requirement.Field)
	}
	return s.Fields.Matches(set)
}

// EventType returns as what a change is sent to a watch, given whether its selector matched the object before
// the change, and matches it after that: an object is added when it begins to match, and deleted when it
// ceases to. It returns an empty type if nothing is sent.
func EventType(was, is bool) watch.EventType {
	switch {
	case was && is:
		return watch.Modified
	case is:
		return watch.Added
	case was:
		return watch.Deleted
	}
	return ""
}
