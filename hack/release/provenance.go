package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// localBuilder is who builds where nobody says.
const localBuilder = source + "/blob/main/docs/develop/releasing.md#a-release-on-your-own-machine"

// provenance writes of all files made so far, and of the images, what they were made from: an in-toto
// statement with a predicate of SLSA. It is not signed; the workflow signs the checksums, which cover it.
func (r *release) provenance(_ context.Context, built *binaries) error {
	subjects, err := r.subjects()
	if err != nil {
		return err
	}

	materials, err := r.materials(built)
	if err != nil {
		return err
	}

	var platforms []any
	for _, p := range r.platforms {
		platforms = append(platforms, p.String())
	}

	parameters, err := structpb.NewStruct(map[string]any{
		"version":         r.version,
		"repository":      r.repository,
		"downloads":       r.downloads,
		"platforms":       platforms,
		"sourceDateEpoch": float64(r.date.Unix()),
	})
	if err != nil {
		return err
	}

	predicate := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: source +
				"/blob/main/docs/develop/releasing.md#how-it-is-built",
			ExternalParameters:   parameters,
			ResolvedDependencies: materials,
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: cmp.Or(r.builder, localBuilder)}},
	}
	if err := predicate.Validate(); err != nil {
		return err
	}

	object, err := asStruct(predicate)
	if err != nil {
		return err
	}

	statement := &intoto.Statement{
		Type:          intoto.StatementTypeUri,
		Subject:       subjects,
		PredicateType: "https://slsa.dev/provenance/v1",
		Predicate:     object,
	}
	if err := statement.Validate(); err != nil {
		return err
	}

	text, err := stable(statement)
	if err != nil {
		return err
	}

	return os.WriteFile(r.path(provenanceFile), text, 0o644)
}

// subjects are the files of the release and its images.
func (r *release) subjects() ([]*intoto.ResourceDescriptor, error) {
	names, err := r.files()
	if err != nil {
		return nil, err
	}

	var all []*intoto.ResourceDescriptor
	for _, name := range names {
		sum, err := checksum(r.path(name))
		if err != nil {
			return nil, err
		}
		all = append(all, &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": sum}})
	}

	for name, digest := range r.images {
		all = append(all, &intoto.ResourceDescriptor{
			Name:   name,
			Digest: map[string]string{"sha256": strings.TrimPrefix(digest, "sha256:")},
		})
	}

	slices.SortStableFunc(all, func(a, b *intoto.ResourceDescriptor) int {
		return cmp.Compare(a.Name, b.Name)
	})
	return all, nil
}

// materials are the commit, the compiler, and the modules of all programs.
func (r *release) materials(built *binaries) ([]*intoto.ResourceDescriptor, error) {
	modules := map[string]*debug.Module{}
	compilers := map[string]bool{}
	for _, b := range built.all {
		compilers[b.info.GoVersion] = true
		for _, m := range b.info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[moduleID(m)] = m
		}
	}

	all := []*intoto.ResourceDescriptor{{Uri: "git+" + source,
		Digest: map[string]string{"gitCommit": r.commit}}}
	for compiler := range compilers {
		all = append(all, &intoto.ResourceDescriptor{Uri: "https://go.dev/dl/#" + compiler, Name: compiler})
	}

	for _, m := range modules {
		sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
		if err != nil || len(sum) == 0 {
			return nil, fmt.Errorf("module %s has no checksum", moduleID(m))
		}
		all = append(all, &intoto.ResourceDescriptor{
			Uri:    moduleComponent(m).PackageURL,
			Digest: map[string]string{"dirHash": hex.EncodeToString(sum)},
		})
	}

	slices.SortFunc(all[1:], func(a, b *intoto.ResourceDescriptor) int { return cmp.Compare(a.Uri, b.Uri) })
	return all, nil
}

func asStruct(m proto.Message) (*structpb.Struct, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, protojson.Unmarshal(text, s)
}

// stable is the JSON of a message, without the blanks that protojson puts here or there.
func stable(m proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(m)
	if err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return nil, err
	}
	indented.WriteByte('\n')
	return indented.Bytes(), nil
}
