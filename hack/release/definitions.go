package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const definitionsFolder = "config/crd/bases"

// checkDefinitions compares the definitions with those of the release before, if there is one: within a minor
// version schemas only widen, and a version that was served without being deprecated still is (OPS-111).
func (r *release) checkDefinitions(ctx context.Context) error {
	tags, err := r.git(ctx, "tag", "--merged", "HEAD")
	if err != nil {
		return err
	}

	before := releaseBefore(r.version, strings.Fields(tags))
	if before == "" {
		r.say("there is no release before %s to compare definitions with", r.version)
		return nil
	}

	list, err := r.git(ctx, "ls-tree", "--name-only", before, definitionsFolder+"/")
	if err != nil {
		return err
	}

	var wrong []error
	for path := range strings.FieldsSeq(list) {
		text, err := r.git(ctx, "show", before+":"+path)
		if err != nil {
			return err
		}
		old, now := &apiextensionsv1.CustomResourceDefinition{}, &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal([]byte(text), old); err != nil {
			return fmt.Errorf("%s of %s: %w", path, before, err)
		}
		content, err := os.ReadFile(filepath.Join(r.root, path))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s is no kind any more: %w", old.Name, err))
			continue
		}
		if err := yaml.Unmarshal(content, now); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		wrong = append(wrong, definitionErrors(old, now,
			semver.MajorMinor(before) == semver.MajorMinor(r.version))...)
	}

	if len(wrong) > 0 {
		return fmt.Errorf("objects or clients of %s would not get along with %s:\n%w", before, r.version,
			errors.Join(wrong...))
	}

	return nil
}

// releaseBefore returns the highest version below this one that is no test of a release.
func releaseBefore(version string, tags []string) string {
	before := ""
	for _, tag := range tags {
		if semver.IsValid(tag) && semver.Prerelease(tag) == "" && semver.Compare(tag, version) < 0 &&
			(before == "" || semver.Compare(tag, before) > 0) {
			before = tag
		}
	}
	return before
}

// definitionErrors says what was allowed by the old definition and is not by the new one; schemas are
// compared within a minor version.
func definitionErrors(old, now *apiextensionsv1.CustomResourceDefinition, sameMinor bool) (wrong []error) {
	if old.Name != now.Name || old.Spec.Scope != now.Spec.Scope ||
		old.Spec.Names.Kind != now.Spec.Names.Kind {
		wrong = append(wrong, fmt.Errorf("%s is another kind now", old.Name))
	}

	for _, v := range old.Spec.Versions {
		if !v.Served {
			continue
		}
		i := slices.IndexFunc(now.Spec.Versions,
			func(n apiextensionsv1.CustomResourceDefinitionVersion) bool {
				return n.Name == v.Name && n.Served
			})
		if i < 0 {
			if !v.Deprecated {
				wrong = append(wrong, fmt.Errorf("%s: version %s is gone, and no release has said so before",
					old.Name, v.Name))
			}
			continue
		}
		if sameMinor && v.Schema != nil {
			c := comparison{}
			if now.Spec.Versions[i].Schema == nil {
				continue
			}
			c.schema(old.Name+" "+v.Name+":", v.Schema.OpenAPIV3Schema,
				now.Spec.Versions[i].Schema.OpenAPIV3Schema)
			wrong = append(wrong, c.wrong...)
		}
	}

	return wrong
}

// comparison collects in what a schema is narrower than another.
type comparison struct{ wrong []error }

func (c *comparison) narrower(when bool, at, what string, args ...any) {
	if when {
		c.wrong = append(c.wrong, fmt.Errorf("%s %s", at, fmt.Sprintf(what, args...)))
	}
}

// schema compares two schemas, and all below them.
func (c *comparison) schema(at string, old, now *apiextensionsv1.JSONSchemaProps) {
	if old == nil || now == nil {
		c.narrower(old == nil && now != nil, at, "has a schema now")
		return
	}

	c.narrower(old.Type != now.Type && now.Type != "" && (old.Type != "integer" || now.Type != "number"), at,
		"was of type %q, and is of type %q", old.Type, now.Type)
	c.narrower(old.Nullable && !now.Nullable, at, "must not be null any more")
	c.narrower(old.XIntOrString && !now.XIntOrString, at, "is not a number or a string any more")
	oldOpen, nowOpen := isTrue(old.XPreserveUnknownFields), isTrue(now.XPreserveUnknownFields)
	c.narrower(oldOpen && !nowOpen, at, "loses unknown fields")
	for _, name := range now.Required {
		c.narrower(!slices.Contains(old.Required, name), at, "must have %s now", name)
	}

	c.values(at, old, now)
	c.limits(at, old, now)
	c.structure(at, old, now)

	for _, name := range slices.Sorted(maps.Keys(old.Properties)) {
		before := old.Properties[name]
		after, ok := now.Properties[name]
		c.narrower(!ok && !nowOpen, at, "has no field %s any more", name)
		if ok {
			c.schema(at+"."+name, &before, &after)
		}
	}

	for name := range now.Properties {
		_, ok := old.Properties[name]
		c.narrower(!ok && oldOpen, at, "has a schema for field %s now, which could be anything", name)
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

// values compares what single values may be.
func (c *comparison) values(at string, old, now *apiextensionsv1.JSONSchemaProps) {
	allowed := map[string]bool{}
	for _, v := range now.Enum {
		allowed[string(v.Raw)] = true
	}

	c.narrower(len(old.Enum) == 0 && len(now.Enum) > 0, at, "has a list of values now")
	for _, v := range old.Enum {
		c.narrower(len(now.Enum) > 0 && !allowed[string(v.Raw)], at, "must not be %s any more", v.Raw)
	}

	c.narrower(now.Pattern != "" && now.Pattern != old.Pattern, at, "must match %q now", now.Pattern)
	c.narrower(now.Format != "" && now.Format != old.Format &&
		(old.Format != "int32" || now.Format != "int64"), at,
		"must be of format %s now", now.Format)
	c.narrower(now.UniqueItems && !old.UniqueItems, at, "must not have a value twice now")
	c.narrower(now.MultipleOf != nil && !reflect.DeepEqual(old.MultipleOf, now.MultipleOf), at,
		"must be a multiple now")
	rules := map[string]bool{}
	for _, rule := range old.XValidations {
		rules[rule.Rule] = true
	}

	for _, rule := range now.XValidations {
		c.narrower(!rules[rule.Rule], at, "has the new rule %q", rule.Rule)
	}
}

// limits compares lower and upper limits.
func (c *comparison) limits(at string, old, now *apiextensionsv1.JSONSchemaProps) {
	for _, limit := range []struct {
		name     string
		old, now *int64
		upper    bool
	}{
		{"maxLength", old.MaxLength, now.MaxLength, true}, {"minLength", old.MinLength, now.MinLength, false},
		{"maxItems", old.MaxItems, now.MaxItems, true}, {"minItems", old.MinItems, now.MinItems, false},
		{"maxProperties", old.MaxProperties, now.MaxProperties, true},
		{"minProperties", old.MinProperties, now.MinProperties, false},
	} {
		c.narrower(tighter(limit.old, limit.now, limit.upper), at, "has a tighter %s", limit.name)
	}

	c.narrower(tighter(old.Maximum, now.Maximum, true), at, "has a tighter maximum")
	c.narrower(tighter(old.Minimum, now.Minimum, false), at, "has a tighter minimum")
	c.narrower(now.Maximum != nil && now.ExclusiveMaximum && !old.ExclusiveMaximum, at,
		"must be below its maximum now")
	c.narrower(now.Minimum != nil && now.ExclusiveMinimum && !old.ExclusiveMinimum, at,
		"must be above its minimum now")
}

func tighter[N int64 | float64](old, now *N, upper bool) bool {
	return now != nil && (old == nil || upper && *now < *old || !upper && *now > *old)
}

// structure compares how values are put together.
func (c *comparison) structure(at string, old, now *apiextensionsv1.JSONSchemaProps) {
	c.narrower(!reflect.DeepEqual(old.XListType, now.XListType) ||
		!slices.Equal(old.XListMapKeys, now.XListMapKeys) ||
		!reflect.DeepEqual(old.XMapType, now.XMapType), at, "is merged in another way")
	for name, pair := range map[string][2]any{
		"allOf": {old.AllOf, now.AllOf},
		"anyOf": {old.AnyOf, now.AnyOf},
		"oneOf": {old.OneOf, now.OneOf},
		"not":   {old.Not, now.Not},
	} {
		c.narrower(!reflect.ValueOf(pair[1]).IsZero() && !reflect.DeepEqual(pair[0], pair[1]), at,
			"has another %s", name)
	}

	if old.Items != nil || now.Items != nil {
		var before, after *apiextensionsv1.JSONSchemaProps
		if old.Items != nil {
			before = old.Items.Schema
		}
		if now.Items != nil {
			after = now.Items.Schema
		}
		c.schema(at+"[]", before, after)
	}
	more, moreNow := old.AdditionalProperties, now.AdditionalProperties
	c.narrower(more != nil && more.Allows && (moreNow == nil || !moreNow.Allows) &&
		!isTrue(now.XPreserveUnknownFields), at,
		"is no map any more")
	if more != nil && moreNow != nil {
		c.schema(at+"{}", more.Schema, moreNow.Schema)
	}
}
