package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bomEnd is the end of the names of lists of components.
const bomEnd = ".cdx.json"

// boms writes for each program and platform the list of what it is made of, as the compiler recorded it in
// the program itself. An image has nothing more in it that runs, and has the same list.
func (r *release) boms(_ context.Context, built *binaries) error {
	for _, b := range built.all {
		sum, err := checksum(b.path)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(r.bom(b, sum),
			cdx.SpecVersion1_6); err != nil {
			return err
		}
		if err := os.WriteFile(r.path(r.archiveName(b.program, b.platform)+bomEnd), text.Bytes(),
			0o644); err != nil {
			return err
		}
	}

	return nil
}

// bom lists the modules of a program, and the standard library, for which weaknesses are published too.
func (r *release) bom(b binary, sum string) *cdx.BOM {
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(sum)
	self := cdx.Component{
		Type:        cdx.ComponentTypeApplication,
		Name:        b.name,
		Version:     r.version,
		Description: b.describe,
		BOMRef:      fmt.Sprintf("%s/%s", b.name, b.platform),
		Hashes:      &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
		Licenses:    &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
		PackageURL: fmt.Sprintf("pkg:golang/%s@%s?goarch=%s&goos=%s#cmd/%s",
			strings.ToLower(b.info.Main.Path), r.version, b.arch, b.os,
			b.name),
	}
	bom.Metadata = &cdx.Metadata{
		Timestamp:  r.date.Format("2006-01-02T15:04:05Z"),
		Component:  &self,
		Properties: &[]cdx.Property{{Name: "commit", Value: r.commit}},
	}
	library := "pkg:golang/std@" + strings.TrimPrefix(b.info.GoVersion, "go")
	components := []cdx.Component{{Type: cdx.ComponentTypeLibrary, Name: "std", Version: b.info.GoVersion,
		BOMRef: library, PackageURL: library}}

	refs := []string{library}
	for _, m := range b.info.Deps {
		component := moduleComponent(m)
		components, refs = append(components, component), append(refs, component.BOMRef)
	}

	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: self.BOMRef, Dependencies: &refs}}
	return bom
}

// moduleComponent is a module, by that which replaces it, if one does.
func moduleComponent(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	url := "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")
	return cdx.Component{
		Type:       cdx.ComponentTypeLibrary,
		Name:       m.Path,
		Version:    m.Version,
		BOMRef:     url,
		PackageURL: url,
		Properties: &[]cdx.Property{{Name: "go.sum", Value: m.Sum}},
	}
}

// serial makes a UUID of what is listed, so that the same program always has the same.
func serial(sum string) string {
	h := sha256.Sum256([]byte("components of " + sum))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8, of our own making
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
